"""The parts of models that integrate motion.

``force`` is a learned law between pairs, ``leapfrog`` integrates it. Imports layers, no model.
"""
