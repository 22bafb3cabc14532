"""Counter-based random streams: draws of one key are independent of all other keys."""

import numpy as np


class Streams:
    """The generators ``Philox(key=[seed, i])`` for all i: one object, set to each in turn.

    (Constructing a new one takes longer than all the draws of a trajectory.)

    Args:
        seed: from 0 to 2^64 - 1.
    """

    def __init__(self, seed: int) -> None:
        self._philox = np.random.Philox(key=np.array([seed, 0], dtype=np.uint64))
        self._generator = np.random.Generator(self._philox)
        self._start = self._philox.state

    def at(self, i: int, counter: tuple[int, int, int, int] = (0, 0, 0, 0)) -> np.random.Generator:
        """The stream of key i from `counter` on; it invalidates the one returned before."""
        self._start["state"]["key"][1] = i
        self._start["state"]["counter"][:] = counter
        self._philox.state = self._start
        return self._generator
