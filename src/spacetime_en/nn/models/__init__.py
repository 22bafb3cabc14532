"""The models, one file each; :mod:`spacetime_en.nn.presets` names them.

Each maps a graph to a forecast and declares its symmetries. Imports layers, physics and the base
class; ``regression`` and ``tree`` are shared by several models.
"""
