"""Hamilton's and Lagrange's equations of known systems, from nothing but their scalar."""

import pytest
import torch

from spacetime_en.nn.physics.mechanics import euler_lagrange, hamilton

MASS = torch.tensor([[1.0], [2.0], [0.5]], dtype=torch.float64)


def random_states(B=4, N=3, n=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(2, B, N, n, generator=g, dtype=torch.float64)


def springs(x):
    """The sum over pairs of |x_ij|^2 / 2."""
    return (x[:, :, None] - x[:, None]).square().sum((1, 2, 3)) / 4


def gravity(x):
    """The sum over pairs of -m_i m_j / |x_ij|."""
    i, j = torch.triu_indices(3, 3, 1)
    return -(MASS[i] * MASS[j]).squeeze(1).div((x[:, i] - x[:, j]).norm(dim=-1)).sum(1)


def force_by_springs(x, i, j):
    return x[j] - x[i]


def force_by_gravity(x, i, j):
    return MASS[i] * MASS[j] * (x[j] - x[i]) / (x[j] - x[i]).norm() ** 3


@pytest.mark.parametrize(
    ("potential", "force"), [(springs, force_by_springs), (gravity, force_by_gravity)]
)
def test_newtons_equations_follow_from_the_energy_and_from_the_lagrangian(potential, force):
    x, v = random_states()

    def kinetic(v):
        return (MASS * v.square()).sum((1, 2)) / 2

    dx, dv = hamilton(lambda x, v: kinetic(v) + potential(x), x, v, MASS)
    inertia = torch.diag(MASS[:, 0]).expand(4, 3, 3)
    a = euler_lagrange(lambda x, v: kinetic(v) - potential(x), x, v, inertia)
    torch.testing.assert_close(dx, v)
    for b in range(4):
        for i in range(3):
            wanted = sum(force(x[b], i, j) for j in range(3) if j != i) / MASS[i]
            torch.testing.assert_close(dv[b, i], wanted)
            torch.testing.assert_close(a[b, i], wanted)


def test_a_charge_in_a_magnetic_field_goes_in_circles():
    """H = |p - A|^2 / 2 with A = B/2 (-y, x): dx/dt is not p, and its derivative is B (y', -x')."""
    x, p = random_states(N=1)
    field = 0.7

    def vector_potential(x):
        return field / 2 * torch.stack([-x[..., 1], x[..., 0]], -1)

    def energy(x, p):
        return (p - vector_potential(x)).square().sum((1, 2)) / 2

    dx, dp = hamilton(energy, x, p, 1.0)
    torch.testing.assert_close(dx, p - vector_potential(x))
    acceleration = dp - vector_potential(dx)
    torch.testing.assert_close(acceleration, field * torch.stack([dx[..., 1], -dx[..., 0]], -1))


def test_polar_coordinates_have_inertia_that_depends_on_where_one_is():
    """Kepler's problem, L = (r'^2 + r^2 w'^2) / 2 + 1 / r: the equations of the textbook."""
    q, dq = random_states(N=2, n=1)
    q = q.abs() + 0.5
    r, dr, dw = q[:, 0, 0], dq[:, 0, 0], dq[:, 1, 0]

    def lagrangian(q, dq):
        r = q[:, 0, 0]
        return (dq[:, 0, 0].square() + (r * dq[:, 1, 0]).square()) / 2 + 1 / r

    inertia = torch.diag_embed(torch.stack([torch.ones_like(r), r.square()], 1))
    a = euler_lagrange(lagrangian, q, dq, inertia)
    torch.testing.assert_close(a[:, 0, 0], r * dw.square() - 1 / r.square())
    torch.testing.assert_close(a[:, 1, 0], -2 * dr * dw / r)


@pytest.mark.parametrize("law", ["hamilton", "euler_lagrange"])
def test_laws_can_be_learned_through(law):
    """Their derivatives, by states and by what is learned, are those of finite differences."""
    x, v = (t.requires_grad_() for t in random_states(B=1))
    k = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    def scalar(x, v):
        speed = (v[:, :, None] - v[:, None]).square().sum((1, 2, 3))
        return v.square().sum((1, 2)) / 2 + (k * springs(x)).sin() + 0.1 * k * speed * springs(x)

    def of(x, v, k):
        if law == "hamilton":
            return hamilton(scalar, x, v, 1.0)
        joint = 0.4 * k * springs(x)[:, None, None] * (3 * torch.eye(3) - torch.ones(3, 3)).double()
        return euler_lagrange(scalar, x, v, torch.eye(3).double() + joint)

    assert torch.autograd.gradcheck(of, (x, v, k))
