"""The layers of the paper: graph convolution in space, attention over time, blocks of both.

``egcl`` (Eqs. 2-4) sums ``messages`` over a ``neighbourhood``; ``etal`` (Eqs. 5-10) attends over
time. Imports no model.
"""
