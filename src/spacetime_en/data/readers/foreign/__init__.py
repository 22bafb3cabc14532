"""Readers built on other packages, run in the process of :mod:`spacetime_en.data.readers.sandbox`.

Nothing of this package is imported here, so that the process starts quickly. Each module has a
function ``read`` that returns arrays and texts by name, or exits with a message about the file.
"""
