"""Simulated trajectories: ``simulate`` and the built-in systems.

``systems`` defines force laws, ``integrator`` and ``simd`` the compiled steps, ``drift`` the
conserved quantities; ``ray`` runs on a cluster. Imports trajectories and what is below them.
"""
