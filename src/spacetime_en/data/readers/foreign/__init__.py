"""What runs in the process of :mod:`spacetime_en.data.readers.sandbox`: other packages' readers.

Nothing of ours is imported here, so that the process starts at once. Each module has a function
``read`` that returns arrays and texts by name, or exits with a sentence about the file.
"""
