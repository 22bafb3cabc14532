"""The parts of models that integrate motion.

``force`` is a learned law between pairs, ``leapfrog`` integrates it, ``observer`` finds initial
conditions in noisy windows. Imports layers, no model.
"""
