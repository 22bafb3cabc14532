"""Parts of the models that integrate a law of motion.

``force`` is a learned force law of pairs, ``potential`` one derived from a pair potential, and
``graph_force`` one of many bodies; ``mechanics`` has the equations of Hamilton and Lagrange, and
``scalars`` the pair scalars of their energies. ``integration`` integrates all of them, in steps of
``leapfrog`` or ``runge_kutta``. Imports layers, no model.
"""
