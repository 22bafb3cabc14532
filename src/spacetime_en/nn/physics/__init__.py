"""The parts of models that integrate motion.

``force`` is a learned law between pairs, ``potential`` one that is derived from their energy,
``graph_force`` one of many bodies; ``mechanics`` has the equations of Hamilton and Lagrange, and
``scalars`` what their energies are made of. ``integration`` advances all of them, in the steps of
``leapfrog`` or ``runge_kutta``. Imports layers, no model.
"""
