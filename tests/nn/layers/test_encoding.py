import math

import pytest
import torch

from spacetime_en import SET, InputError
from spacetime_en.nn.layers.encoding import frame_index, sinusoid
from tests.helpers import SMALL, liven, particles, random_neighbours


@pytest.mark.parametrize("width", [1, 2, 3, 8, 25])
def test_sinusoid_is_appendix_d(width):
    found = sinusoid(torch.arange(6.0).double()[None], width)[0]
    for t in range(6):
        for channel in range(width):
            j = channel // 2
            angle = t / 10_000 ** (2 * j / width)
            expected = math.sin(angle) if channel % 2 == 0 else math.cos(angle)
            assert found[t, channel].item() == pytest.approx(expected, abs=1e-12)


def test_frames_are_counted_from_the_first_observed_one():
    observed = torch.tensor([[False, False, True, True], [True, False, True, True]])
    index = frame_index(observed, like=torch.zeros(2, 4))
    assert index.tolist() == [[-2, -1, 0, 1], [0, 1, 2, 3]]


@pytest.mark.parametrize("letter", "WXYZ")
def test_each_encoding_changes_the_forecast(letter):
    graph = particles()
    torch.manual_seed(0)
    plain = liven(SET(**SMALL)).double().eval()
    encoded = SET(encodings=letter, **SMALL).double().eval()
    encoded.load_state_dict(plain.state_dict())
    assert (encoded(graph).x - plain(graph).x).abs().max() > 1e-6


def test_unknown_letters_are_refused():
    with pytest.raises(InputError, match=r"encodings: expected letters of 'WXYZ', found \['Q'\]"):
        SET(encodings="WQ")


def test_z_needs_a_complete_graph():
    mask = torch.ones(3, 1, 4, dtype=torch.bool)
    mask[1, 0, 3] = False
    with pytest.raises(InputError, match=r"the encoding Z counts all nodes, .* has 3 of 4"):
        SET(encodings="Z", **SMALL).double()(particles(observed=mask))
    with pytest.raises(InputError, match="the encoding Z needs a complete graph"):
        SET(encodings="Z", **SMALL).double()(particles(neighbours=random_neighbours(4, 2)))
