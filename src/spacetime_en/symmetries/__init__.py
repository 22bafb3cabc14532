"""Which symmetries the law of motion behind some data has.

``rows`` describes every node of every window by vectors, ``frames`` turns them into a frame of
their own, ``partial`` is the statistical test, ``questions`` puts one question for each group,
``axis`` and ``algebra`` find directions and generators that nobody asked for, ``study`` asks all
questions, and ``words`` prints the answers. Imports data and the core; reads no test windows.
"""
