"""What every room may use and no user needs to know.

Errors, files, settings from strangers, the terminal, the machine, threads, tensors. Imports
nothing of the other rooms.
"""
