import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spacetime_en import geometry

dims = st.integers(1, 6)
seeds = st.integers(0, 2**31)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(dims, seeds)
def test_rotations_and_reflections_are_orthogonal_with_determinant_one_and_minus_one(n, seed):
    for draw, det in ((geometry.random_rotation, 1), (geometry.random_reflection, -1)):
        q = draw(n, generator(seed))
        torch.testing.assert_close(q @ q.T, torch.eye(n, dtype=q.dtype))
        assert torch.linalg.det(q).item() == pytest.approx(det)


def test_random_orthogonal_is_uniform():
    """Under the Haar measure, E[Q_ij] = 0 and E[Q_ij^2] = 1/n; without the sign fix, not so."""
    g = generator(0)
    draws = torch.stack([geometry.random_orthogonal(3, g) for _ in range(4000)])
    assert draws.mean(0).abs().max() < 0.04
    assert (draws.square().mean(0) - 1 / 3).abs().max() < 0.03
    assert abs((torch.linalg.det(draws) > 0).double().mean() - 0.5) < 0.04


@given(st.integers(2, 20), seeds)
def test_random_permutation_permutes_and_is_not_the_identity(nodes, seed):
    p = geometry.random_permutation(nodes, generator(seed))
    assert sorted(p.tolist()) == list(range(nodes))
    assert p.tolist() != list(range(nodes))


@given(dims, seeds)
def test_translation_stays_in_its_cube(n, seed):
    assert geometry.random_translation(n, 7.0, generator(seed)).abs().max() <= 7


@given(dims, seeds)
def test_distances_are_the_norms_of_differences(n, seed):
    x = torch.randn(2, 5, n, generator=generator(seed), dtype=torch.float64)
    torch.testing.assert_close(geometry.norm(geometry.pairwise_differences(x)), torch.cdist(x, x))


def test_distances_have_finite_gradients_at_zero():
    x = torch.zeros(1, 3, 2, dtype=torch.float64)
    x[0, 2] = 1.0
    x.requires_grad_()
    geometry.norm(geometry.pairwise_differences(x)).sum().backward()
    assert x.grad.isfinite().all()
    # Nodes 0 and 1 share a point and feel only node 2: the gradient of |x_0 - x_2|, twice.
    torch.testing.assert_close(x.grad[0, 0], torch.full((2,), -2 / 2**0.5, dtype=torch.float64))


def test_norm_passes_gradcheck_away_from_zero():
    x = torch.randn(4, 3, dtype=torch.float64, generator=generator(0), requires_grad=True)
    assert torch.autograd.gradcheck(geometry.norm, x)


@given(st.integers(1, 4), seeds)
def test_minimum_image_is_the_nearest_of_all_images(n, seed):
    g = generator(seed)
    q = geometry.random_orthogonal(n, g)
    lengths = 1 + torch.rand(n, generator=g, dtype=torch.float64)
    cell = (torch.diag(lengths) @ q.T)[None]
    d = 2 * torch.randn(1, 5, n, generator=g, dtype=torch.float64)
    shifts = torch.cartesian_prod(*[torch.arange(-6.0, 7.0).double()] * n).view(-1, n)
    images = d[:, :, None] + (shifts @ cell[0])
    nearest = images.square().sum(-1).min(-1).values
    found = geometry.minimum_image(d, cell)
    torch.testing.assert_close(found.square().sum(-1), nearest)


def test_minimum_image_without_a_cell_changes_nothing():
    d = torch.randn(2, 3, generator=generator(0))
    assert geometry.minimum_image(d, None) is d


@given(seeds)
def test_unwrap_undoes_wrapping(seed):
    g = generator(seed)
    cell = torch.diag(torch.tensor([2.0, 3.0])).double()[None]
    path = torch.randn(1, 30, 4, 2, generator=g, dtype=torch.float64).mul(0.2).cumsum(1)
    path = path - (path[:, :1] / cell.diagonal(dim1=1, dim2=2)).floor() @ cell  # starts inside
    wrapped = path - (path / cell.diagonal(dim1=1, dim2=2)).floor() @ cell
    torch.testing.assert_close(geometry.unwrap(wrapped, cell), path)
