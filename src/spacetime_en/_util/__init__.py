"""Internal utilities for all subpackages.

Errors, files, checks of settings and arguments, the terminal, the machine, threads, tensors.
Imports none of the other subpackages.
"""
