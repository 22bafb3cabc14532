import pytest
import torch

from spacetime_en import LSTM, InputError
from spacetime_en.nn.layers.attention import Window
from spacetime_en.nn.models.lstm import LSTMOverTime
from tests.helpers import SMALL, masked, padded, particles


def inputs(L):
    g = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, L, 4, c, generator=g, dtype=torch.float64) for c in (1, 3, 3))


def test_a_token_is_the_state_of_all_nodes():
    layer = LSTMOverTime(nodes=4, features=1, dims=3).double()
    h, x, v = inputs(5)
    new_h, new_x, new_v, _ = layer(h, x, v, Window())
    tokens = torch.cat([torch.cat([t[:, :, i] for t in (h, x, v)], -1) for i in range(4)], -1)
    out, _ = layer.lstm(tokens)
    torch.testing.assert_close(new_x[:, :, 2], out[:, :, 15:18])
    torch.testing.assert_close(new_h[:, :, 1], out[:, :, 7:8])
    torch.testing.assert_close(new_v[:, :, 3], out[:, :, 25:28])


def test_missing_frames_are_skipped():
    layer = LSTMOverTime(nodes=4, features=1, dims=3).double()
    h, x, v = inputs(5)
    observed = torch.tensor([[True, False, True, True, False]] * 2)
    _, found, _, _ = layer(h, x, v, Window(observed.unsqueeze(2).expand(2, 5, 4)))
    _, expected, _, _ = layer(*(t[:, observed[0]] for t in (h, x, v)), Window())
    torch.testing.assert_close(found[:, observed[0]], expected)


def test_a_wrong_n_says_so():
    model = LSTM(nodes=5, **SMALL).double()
    with pytest.raises(InputError, match=r"tied to N = 5 nodes, the graph has 4; .*nodes=4"):
        model(particles(N=4))
    with pytest.raises(InputError, match=r"tied to n = 3 space dimensions, the graph has 2"):
        model(particles(N=5, n=2))
    with pytest.raises(InputError, match=r"observed: .*a graph of the batch has 3 of 5"):
        model(padded())
    with pytest.raises(InputError, match=r"observed: a token of the LSTM .* fill the gaps"):
        model(masked()[:1])
