"""Simulated trajectories: ``simulate``, and the systems that it knows.

``systems`` has the laws of force, ``integrator`` and ``simd`` the compiled steps, ``drift`` what
should be conserved, ``ray`` runs it on a cluster. Imports trajectories and what is below them.
"""
