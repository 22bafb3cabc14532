"""Trajectories from laws of force: systems, compiled integrators, what they conserve."""
