"""Counter-based random streams are NumPy's Philox, whatever was drawn before."""

import numpy as np

from spacetime_en.data.rng import Streams


def test_the_draws_of_a_key_depend_on_no_other():
    streams = Streams(seed=7)
    forwards = [streams.at(i).standard_normal(3) for i in range(4)]
    backwards = [streams.at(i).standard_normal(3) for i in reversed(range(4))]
    assert np.array_equal(forwards, backwards[::-1])
    philox = np.random.Philox(key=np.array([7, 2], dtype=np.uint64))
    assert np.array_equal(forwards[2], np.random.Generator(philox).standard_normal(3))
