"""The equations of Hamilton and Lagrange, for any scalar function of positions and velocities."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# A function of positions and velocities, (B, ...), with one value for each system, (B,).
Scalar = Callable[[Tensor, Tensor], Tensor]


def hamilton(energy: Scalar, x: Tensor, v: Tensor, mass: Tensor | float) -> tuple[Tensor, Tensor]:
    """x' = dH/dp and v' = p'/m = -1/m dH/dx, with the momenta p = m v.

    Args:
        energy: H as a function of x and v = p/m.
        x, v: (B, ...).
        mass: broadcast to x and v.
    """
    train = torch.is_grad_enabled()
    with torch.enable_grad():
        x, v = _variable(x), _variable(v)
        by_x, by_v = torch.autograd.grad(energy(x, v).sum(), (x, v), create_graph=train)
    return by_v / mass, -by_x / mass


def euler_lagrange(lagrangian: Scalar, x: Tensor, v: Tensor, inertia: Tensor) -> Tensor:
    """The accelerations a that solve d/dt dL/dv = dL/dx.

    Written out, (d^2 L/dv^2) a = dL/dx - (d^2 L/dv dx) v.

    Args:
        lagrangian: L, a function of x and v.
        x, v: (B, N, n).
        inertia: the matrix d^2 L/dv^2, (B, N, N), the same for each spatial component.
    """
    train = torch.is_grad_enabled()
    with torch.enable_grad():
        at, by = _variable(x), _variable(v)
        (of_x,) = torch.autograd.grad(lagrangian(at, by).sum(), at, create_graph=True)
        along = (of_x * v).sum()  # (v itself, which is constant for the derivative by `by`)
        (transport,) = torch.autograd.grad(  # (0, where L is a sum of functions of x and v)
            along, by, create_graph=train, materialize_grads=True
        )
    a: Tensor = torch.linalg.solve(inertia, of_x - transport)
    return a


def _variable(t: Tensor) -> Tensor:
    """The same values, as a variable of differentiation that keeps its autograd history."""
    return t.view_as(t) if t.requires_grad else t.detach().requires_grad_()
