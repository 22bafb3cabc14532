"""Which symmetries the law of motion behind some data has.

``rows`` describes every node of every window by vectors, ``frames`` expresses them in an
equivariant frame, ``partial`` is the statistical test, ``questions`` defines one question for each
group, ``axis`` and ``algebra`` find directions and generators without prior candidates, ``study``
asks all questions, and ``words`` prints the answers. Imports data and the core; reads no test
windows.
"""
