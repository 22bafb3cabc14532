"""What a window of noisy frames shows, and the states that it leaves possible."""

import pytest
import torch

from spacetime_en import SpacetimeGraph, build_model, collate
from spacetime_en.nn.physics.observer import Observer, standard_normal
from tests.helpers import masked, particles
from tests.nn.samples import noisy


def statistics(graph):
    units, found = build_model("set-flow-ensemble", like=graph).to(graph.x.dtype)._statistics(graph)
    assert units.origin is not None
    shift = units.origin[:, 0]
    return found._replace(x=found.x + shift, centre=found.centre + shift)


@pytest.mark.parametrize("graph", [particles(L=4, times=[0.0, 1.0, 1.5, 3.0]), masked()])
def test_means_and_scatter_are_those_of_a_plain_loop(graph):
    found = statistics(graph)
    B, L, N, n = graph.x.shape
    seen = torch.ones(B, L, N, dtype=torch.bool) if graph.observed is None else graph.observed
    for b in range(B):
        t = graph.times[b]
        frames = [k for k in range(L) if seen[b, k].any()]
        nodes = [i for i in range(N) if seen[b, :, i].any()]
        middle = sum(t[k] for k in frames) / len(frames)
        torch.testing.assert_close(found.mean_age[b], t[frames[-1]] - middle)
        centre, squares = torch.zeros(n, dtype=torch.float64), []
        for i in nodes:
            own = [k for k in frames if seen[b, k, i]]  # a node has frames of its own
            m, own_middle = len(own), sum(t[k] for k in own) / len(own)
            x = sum(graph.x[b, k, i] for k in own) / m
            v = sum(graph.v[b, k, i] for k in own) / m
            there = x + (middle - own_middle) * v
            centre += there / len(nodes)
            torch.testing.assert_close(found.x[b, i], there)
            torch.testing.assert_close(found.v[b, i], v)
            assert found.frames[b, 0, i] == m
            for k in range(L):
                off = torch.zeros(n, dtype=torch.float64)
                if k in own and m > 1:
                    off = (graph.x[b, k, i] - x - (t[k] - own_middle) * v) / (m - 1) ** 0.5
                torch.testing.assert_close(found.residual_x[b, k, i], off)
            if m > 1:  # once is not enough to see the noise
                squares.append(found.residual_x[b, :, i].square().mean(-1).sum())
        torch.testing.assert_close(found.centre[b, 0], centre)
        torch.testing.assert_close(found.noise_x[b].squeeze(), (sum(squares) / len(squares)).sqrt())


def test_mixtures_of_scatter_are_as_large_as_the_noise():
    graph, _, _ = noisy(W=200, L=6, noise=0.5)
    numbers = torch.randn(2, 200, 6, generator=torch.Generator().manual_seed(1)).double()
    found = statistics(graph)
    for off, size in ((found.residual_x, found.noise_x), (found.residual_v, found.noise_v)):
        assert torch.einsum("kl,blnc->bknc", numbers[0], off).var().item() == pytest.approx(
            0.5, 0.1
        )
        assert size.square().mean().item() == pytest.approx(0.5, rel=0.05)
    padded = collate([graph, particles(B=1, N=9, L=6).replace(edge_attr=None)])
    torch.testing.assert_close(statistics(padded).noise_x[:200], found.noise_x)


def test_a_window_without_noise_leaves_one_state_possible():
    x, v = torch.randn(2, 3, 1, 5, 3, dtype=torch.float64)
    times = torch.tensor([0.0, 0.5, 2.0])
    graph = SpacetimeGraph(x + v * times[:, None, None], v.expand(3, 3, 5, 3), times=times)
    found = statistics(graph)
    assert found.residual_x.abs().max() < 1e-12
    assert found.residual_v.abs().max() < 1e-12


@pytest.mark.parametrize(("L", "members"), [(10, 64), (5, 64), (4, 32)])
def test_shrinkage_begins_as_signal_over_signal_and_noise(L, members):
    observer = Observer().double()
    graph, x, v = noisy(W=4000, L=L, noise=0.5, speed=0.5)
    padded = collate([graph, noisy(W=1, L=L, N=20, seed=1)[0]])
    for seen in (graph, padded):
        observer.calibrate(statistics(seen))
        shrinkage = observer.shrinkage_logit.sigmoid()
        assert shrinkage[0].item() == pytest.approx(1 / (1 + 0.5 / L), rel=0.01)
        assert shrinkage[1].item() == pytest.approx(0.25 / (0.25 + 0.5 / L), rel=0.03)
    torch.testing.assert_close(observer.log_spread.exp(), shrinkage.sqrt())
    # The estimate is then nearer to the truth than the mean, and as far off as the states spread.
    found_x, found_v = observer(statistics(graph), standard_normal(members)[..., :L])
    assert (found_v.mean(1) - v).square().mean() < 0.9 * (graph.v.mean(1) - v).square().mean()
    for found, true in ((found_x, x), (found_v, v)):
        off = (found.mean(1) - true).square().mean().item()
        assert found.var(1, correction=0).mean().item() == pytest.approx(off, rel=0.1)


def test_single_frames_and_single_nodes_say_nothing_of_noise():
    for graph in (particles(L=1), particles(N=1)):
        observer = Observer().double()
        observer.calibrate(statistics(graph))
        torch.testing.assert_close(observer.shrinkage_logit, Observer().double().shrinkage_logit)
