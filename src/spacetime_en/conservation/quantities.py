"""Quantities of a state, and their change along a path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from spacetime_en.conservation.paths import MASS, Paths
from spacetime_en.conservation.terms import KINETIC, TermKind, term_parts
from spacetime_en.data.simulation.systems import System
from spacetime_en.graph import SpacetimeGraph
from spacetime_en.nn.forecaster import Forecaster


class Quantity(Protocol):
    """A sum of parts, one for each node or pair of nodes."""

    def parts(self, paths: Paths) -> Tensor:
        """All parts in all states, (P, T, parts, c)."""
        ...


@dataclass(frozen=True)
class Combination:
    """A linear combination of terms of the dictionary.

    Args:
        kind: scalar, vector or bivector.
        coefficients: by the name of the term.
    """

    kind: TermKind
    coefficients: Mapping[str, float]

    def parts(self, paths: Paths) -> Tensor:
        """The parts of nodes and pairs, (P, T, N [+ pairs], c)."""
        found = []
        for terms in term_parts(paths, self.kind):
            used = [c * terms[name] for name, c in self.coefficients.items() if name in terms]
            if used:
                found.append(torch.stack(used).sum(0))
        return torch.cat(found, dim=2)

    @property
    def name(self) -> str | None:
        """The name used in the field; None if there is none."""
        names = set(self.coefficients)
        for mass in (f"{MASS} ", ""):
            if names == {f"{mass}v"}:
                return "momentum"
            if names == {f"{mass}y∧u"}:
                return "angular momentum"
            if f"{mass}{KINETIC}" in names and not any(
                KINETIC in other or "y·u" in other for other in names - {f"{mass}{KINETIC}"}
            ):
                return "energy" if len(names) > 1 else "kinetic energy"
        return None

    @property
    def formula(self) -> str:
        """The combination as text, such as ``Σ |v|²/2 + 0.998 Σ charge_i charge_j / r``."""
        text = ""
        for name, c in self.coefficients.items():
            sign = "−" if c < 0 else "+"
            sign = f" {sign} " if text else ("−" if c < 0 else "")
            size = "" if abs(c) == 1 else f"{abs(c):#.3g} "
            text += f"{sign}{size}Σ {'1 ' if name.startswith('/') else ''}{name}"
        return text


def momentum(paths: Paths) -> Combination:
    """Σ m v, with m = 1 where masses are not known."""
    return Combination("vector", {f"{MASS} v" if MASS in paths.nodes else "v": 1.0})


def angular_momentum(paths: Paths) -> Combination:
    """Σ m (x - X) ^ (v - V), about the centre of mass X: the same wherever the origin is."""
    return Combination("bivector", {f"{MASS} y∧u" if MASS in paths.nodes else "y∧u": 1.0})


@dataclass(frozen=True)
class SystemEnergy:
    """The energy of a simulated system.

    Where the simulator clips forces, as it does for close charges, not even the truth conserves it.

    Args:
        system: whose potential is known.
        couplings: w_ij of each path, (P, N, N).
    """

    system: System
    couplings: Tensor

    def parts(self, paths: Paths) -> Tensor:
        """Kinetic energies of nodes and potential ones of pairs, (P, T, N + pairs, 1)."""
        i, j = paths.pair_index()
        w = self.couplings[:, None, i, j]
        assert self.system.potential is not None
        pairs = self.system.potential(
            paths.distances().square().numpy(), w.numpy(), self.system.parameter
        )
        return torch.cat([_kinetic(paths), torch.from_numpy(pairs).unsqueeze(-1)], dim=2)


@dataclass(frozen=True)
class LearnedEnergy:
    """The energy that a model's own law of motion conserves, see :meth:`Forecaster.energy`.

    Args:
        model: a model with such an energy.
        graph: the source of the states' attributes; its frames are not read.
    """

    model: Forecaster
    graph: SpacetimeGraph

    def parts(self, paths: Paths) -> Tensor:
        """Kinetic energies of nodes and potential ones of pairs, (P, T, N + pairs, 1)."""
        latest, states = self.graph.latest(), []
        for x, v in zip(paths.x.unbind(1), paths.v.unbind(1), strict=True):
            state = latest.replace(
                x=x.to(latest.x).unsqueeze(1),
                v=v.to(latest.v).unsqueeze(1),
                observed=paths.present.unsqueeze(1).to(latest.x.device),
            )
            with torch.no_grad():
                energy = self.model.energy(state)
            assert energy is not None
            states.append(torch.cat([part.flatten(1) for part in energy], dim=1))
        return torch.stack(states, dim=1).unsqueeze(-1).cpu().double()


def changes(quantity: Quantity, paths: Paths) -> Tensor:
    """The change of a quantity from the first state, (P', T - 1).

    Relative to the sum of the absolute values of its parts in the first state. Paths on which these
    are 0, such as those without a node, are left out.
    """
    parts = quantity.parts(paths)
    total = parts.sum(2)  # (P, T, c)
    scale = parts[:, 0].norm(dim=-1).sum(1)  # (P,)
    change = (total[:, 1:] - total[:, :1]).norm(dim=-1)
    relative: Tensor = change[scale > 0] / scale[scale > 0, None]
    return relative


def _kinetic(paths: Paths) -> Tensor:
    """m |v|^2 / 2 of each node, (P, T, N, 1)."""
    return paths.mass[:, None, :, None] * paths.v.square().sum(-1, keepdim=True) / 2
