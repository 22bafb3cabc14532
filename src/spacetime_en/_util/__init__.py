"""Utilities for all rooms, not for users.

Errors, files, checks of settings and arguments, the terminal, the machine, threads, tensors.
Imports none of the other rooms.
"""
