"""The models, one file each; :mod:`spacetime_en.nn.presets` gives them their names.

Each maps a graph to a forecast and states its symmetries. Imports layers, physics and the base
class; ``regression`` and ``tree`` are parts of several models.
"""
