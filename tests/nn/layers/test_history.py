"""Histories as vectors, against plain loops over nodes and frames."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacetime_en.nn.layers.history import history_vectors, orthonormal_polynomials
from spacetime_en.nn.state import Units
from tests.helpers import masked, particles


@settings(max_examples=50, deadline=None)
@given(
    gaps=st.lists(st.floats(0.01, 10.0), min_size=1, max_size=12),
    seen=st.lists(st.booleans(), min_size=13, max_size=13),
    degree=st.integers(0, 5),
)
def test_polynomials_are_orthonormal_over_the_times_that_count(gaps, seen, degree):
    times = torch.tensor([0.0, *gaps], dtype=torch.float64).cumsum(0)
    times = times / times[-1] - 1
    weight = torch.tensor(seen[: len(times)], dtype=torch.float64)
    p = orthonormal_polynomials(times, weight, degree)
    assert p.shape == (degree + 1, len(times))
    assert not p[:, weight == 0].any()
    there = min(int(weight.sum()), degree + 1)
    expected = torch.diag((torch.arange(degree + 1) < there).double())
    torch.testing.assert_close(p @ p.mT, expected, rtol=0, atol=1e-7)


def test_they_are_polynomials_of_their_degree():
    times = torch.tensor([-1.0, -0.8, -0.3, -0.1, 0.0], dtype=torch.float64)
    p = orthonormal_polynomials(times, torch.ones_like(times), 3)
    for k in range(4):
        powers = times[:, None] ** torch.arange(k + 1)
        fitted = powers @ torch.linalg.lstsq(powers, p[k][:, None]).solution
        torch.testing.assert_close(fitted[:, 0], p[k], rtol=0, atol=1e-9)


@pytest.mark.parametrize("make", [particles, masked])
def test_vectors_are_what_a_loop_over_nodes_and_frames_finds(make):
    graph = make(L=5, times=torch.tensor([0.0, 0.5, 0.7, 2.0, 2.5]))
    state = Units.of(graph, 1.0, 1.0, centred=True).normalize(graph)
    found = history_vectors(graph, state, degree=2).mT
    B, _, N, n = graph.x.shape
    assert found.shape == (B, N, 7, n)
    for b in range(B):
        for i in range(N):
            seen = torch.ones(5) > 0 if graph.observed is None else graph.observed[b, :, i]
            frames = [t for t in range(5) if seen[t]]
            if not frames:
                assert not found[b, i].any()
                continue
            last = frames[-1]
            times = graph.times[b, frames]
            # Gram-Schmidt over all powers of time at once is a QR decomposition.
            powers = ((times - times[-1]) / 2.5)[:, None] ** torch.arange(min(3, len(frames)))
            q, r = torch.linalg.qr(powers)
            q = q * r.diagonal().sign()
            expected = torch.zeros(7, n, dtype=torch.float64)
            expected[0] = graph.v[b, last, i]
            for k in range(q.shape[1]):
                for row, t in enumerate(frames):
                    expected[1 + k] += q[row, k] * (graph.x[b, t, i] - graph.x[b, last, i])
                    expected[4 + k] += q[row, k] * graph.v[b, t, i]
            torch.testing.assert_close(found[b, i], expected, rtol=0, atol=1e-9)


def test_motion_at_constant_acceleration_has_no_third_order():
    times = torch.linspace(0, 1, 6, dtype=torch.float64)
    graph = particles(L=6, times=times)
    t = times[None, :, None, None]
    x = graph.x[:, :1] + t * graph.v[:, :1] + t**2 * graph.x[:, 1:2]
    graph = graph.replace(x=x, v=graph.v[:, :1] + 2 * t * graph.x[:, 1:2])
    state = Units.of(graph, 1.0, 1.0, centred=True).normalize(graph)
    vectors = history_vectors(graph, state, degree=3).mT
    assert vectors[:, :, 4].abs().max() < 1e-12  # displacements, degree 3
    assert vectors[:, :, 7].abs().max() < 1e-12  # velocities, degree 2
    assert vectors[:, :, 3].abs().max() > 0.05
