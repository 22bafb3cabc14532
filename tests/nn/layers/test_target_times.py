"""Interpolation in the target time."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacetime_en.nn.layers.target_times import hat_functions

TIMES = st.lists(st.floats(0.01, 10.0), min_size=1, max_size=6)


@settings(max_examples=50, deadline=None)
@given(gaps=TIMES, asked=TIMES)
def test_hats_interpolate_as_numpy_does(gaps, asked):
    known = torch.tensor(gaps, dtype=torch.float64).cumsum(0)
    values = torch.randn(len(known), generator=torch.Generator().manual_seed(0)).double()
    times = torch.tensor(asked, dtype=torch.float64)
    found = hat_functions(times[None], known)[0] @ values
    expected = np.interp(times, known, values)
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=0, atol=1e-9)
