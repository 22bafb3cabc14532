"""Conservation: which quantities some data conserve, and how far a forecast drifts from them.

``paths`` holds states along paths, ``terms`` the dictionary of candidate terms, ``quantities`` what
is measured of a path; ``search`` finds what stays constant, and ``drift`` compares forecasts with
the truth. Imports models and data, and every subpackage below.
"""
