"""The state that blocks transform, and its conversion from graphs and to forecasts."""

from typing import NamedTuple

import torch
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en.graph import Forecast, SpacetimeGraph, newest_observed, speeds
from spacetime_en.metrics import both


class State(NamedTuple):
    """The four quantities that a block updates.

    Args:
        h: features theta, (B, L, N, d).
        x: positions xi, (B, L, N, n).
        v: velocities omega, (B, L, N, n).
        a: edge attributes, (B, L, N, K, e), with e channels between blocks and e + 1, with the
            squared distance, inside a block.
    """

    h: Tensor
    x: Tensor
    v: Tensor
    a: Tensor


class Units(NamedTuple):
    """The units and the origin in which a model works.

    Dividing by `length` and `time` brings data in any unit to order one. A translation equivariant
    model may also choose its origin: one near the nodes keeps float32 accurate when the cloud is
    far from 0. It is the centroid of the first observed frame, not of the whole window, so that
    causal models stay exactly causal.

    Args:
        length, time: the units of length and time.
        origin: (B, 1, 1, n), or None to leave positions unchanged.
    """

    length: float
    time: float
    origin: Tensor | None

    @classmethod
    def of(cls, graph: SpacetimeGraph, length: float, time: float, centred: bool) -> "Units":
        """The units for `graph`, their origin at the first frame's centroid if `centred`."""
        if not centred:
            return cls(length, time, None)
        observed = graph.observed
        if observed is None:
            return cls(length, time, graph.x[:, :1].mean(2, keepdim=True))
        # The nodes that exist, in the first observed frame of each graph.
        first = observed & (observed.any(2).cumsum(1) == 1)[..., None]  # (B, L, N)
        x = graph.x.masked_fill(~first.unsqueeze(-1), 0.0)
        count = first.to(x.dtype).sum((1, 2), keepdim=True).unsqueeze(-1)  # (B, 1, 1, 1)
        return cls(length, time, x.sum((1, 2), keepdim=True) / count)

    def normalize(self, graph: SpacetimeGraph) -> State:
        """The state of `graph` in these units, 0 wherever nothing was observed."""
        x, v, features = graph.unwrapped_x(), graph.v, graph.features
        if self.origin is not None:
            x = x - self.origin
        observed = graph.observed
        if observed is not None:
            missing = ~observed.unsqueeze(-1)
            x, v = x.masked_fill(missing, 0.0), v.masked_fill(missing, 0.0)
            features = None if features is None else features.masked_fill(missing, 0.0)
        x, v = x / self.length, v * (self.time / self.length)
        # Speeds have a unit, so they are computed after the change of units.
        h = speeds(v) if features is None else features
        return State(h, x, v, self._edges(graph))

    def _edges(self, graph: SpacetimeGraph) -> Tensor:
        """(B, L, N, K, e), 0 on the diagonal and on edges that do not exist."""
        B, L, N, _ = graph.x.shape
        mask = graph.edge_mask.unsqueeze(-1)
        shape = (B, L, N, mask.shape[3], graph.edge_width)
        if graph.edge_attr is None:
            return graph.x.new_zeros(shape)
        return graph.edge_attr.masked_fill(~mask, 0.0).expand(shape)

    def cell(self, graph: SpacetimeGraph) -> Tensor | None:
        """The periodic cell in these units, (B, n, n), or None."""
        return None if graph.box is None else graph.box / self.length

    def denormalize(self, graph: SpacetimeGraph, x: Tensor, v: Tensor) -> Forecast:
        """A forecast in the units of the data, 0 for padded nodes.

        Args:
            graph: the graph that was forecast.
            x, v: in these units, (B, T, N, n), or (B, N, n) from single-horizon models.
        """
        if x.ndim == 3:
            x, v = x.unsqueeze(1), v.unsqueeze(1)
        x, v = x * self.length, v * (self.length / self.time)
        if self.origin is not None:
            x = x + self.origin
        present = graph.present
        if present is None:
            return Forecast(x, v, graph.horizon)
        mask = present.unsqueeze(1).expand(x.shape[:3])  # (B, T, N)
        x, v = (t.masked_fill(~mask.unsqueeze(-1), 0.0) for t in (x, v))
        return Forecast(x, v, graph.horizon, mask)

    def normalize_forecast(self, forecast: Forecast) -> tuple[Tensor, Tensor]:
        """Positions and velocities of a forecast or a target in these units, (B, T, N, n)."""
        x = forecast.x if self.origin is None else forecast.x - self.origin
        return x / self.length, forecast.v * (self.time / self.length)


def counted(graph: SpacetimeGraph, target: Forecast) -> Tensor | None:
    """Where a node is present and its target counts, (B, T, N); None: everywhere."""
    present = graph.present
    if present is not None:
        present = present.unsqueeze(1).expand(target.x.shape[:3])
    return both(present, target.mask)


def require_up(graph: SpacetimeGraph) -> Tensor:
    """The direction ``up`` of a graph, (B, n); refuses a graph without one."""
    if graph.up is None:
        raise InputError(
            "up: this model was built for data with an up direction, the graph has none; give "
            "SpacetimeGraph(..., up=...), or build the model without."
        )
    return graph.up


def with_up(state: State, graph: SpacetimeGraph) -> tuple[State, Tensor]:
    """Append the height of every node along ``up``, and its rate of climb, to the features.

    Returns: the state with d + 2 features, and the direction as (B, 1, 1, n).
    """
    up = require_up(graph)[:, None, None]
    if graph.box is not None:
        raise InputError("box: heights have no meaning in a periodic box; leave up or box out.")
    along = [(t * up).sum(-1, keepdim=True) for t in (state.x, state.v)]
    return state._replace(h=torch.cat([state.h, *along], dim=-1)), up


def mean_over_time(t: Tensor, observed: Tensor | None) -> Tensor:
    """The mean over each node's observed frames, (B, L, N, c) -> (B, N, c) (Alg. 2)."""
    if observed is None:
        return t.mean(1)
    weight = observed.to(t.dtype)
    return torch.einsum("bln,blnc->bnc", weight / weight.sum(1, keepdim=True).clamp(min=1), t)


def last_state(graph: SpacetimeGraph) -> tuple[Units, Tensor, Tensor]:
    """The graph's own units, and x and v of each node's last observation, (B, N, n) each."""
    units = Units.of(graph, length=1.0, time=1.0, centred=False)
    state = units.normalize(graph)
    x, v = (at_frame(t, graph.last_observed) for t in (state.x, state.v))
    return units, x, v


def without_gaps(graph: SpacetimeGraph, state: State) -> State:
    """The state with gaps in positions filled in, in the graph's units of time.

    Positions are interpolated linearly between observations, and extrapolated before the first and
    after the last at the velocity observed there. Velocities in gaps stay 0.
    """
    observed = graph.observed
    if observed is None:
        return state
    L = observed.shape[1]
    before = newest_observed(observed)  # (B, L, N)
    after = L - 1 - newest_observed(observed.flip(1)).flip(1)
    earlier, later = before >= 0, after < L
    start = torch.where(earlier, before, after).clamp(0, L - 1)
    end = torch.where(later, after, before).clamp(0, L - 1)
    times = -graph.since.to(state.x.dtype).unsqueeze(-1).expand(observed.shape)
    t0, t1 = times.gather(1, start), times.gather(1, end)
    x0, x1, v0 = (
        t.gather(1, at.unsqueeze(-1).expand_as(t))
        for t, at in ((state.x, start), (state.x, end), (state.v, start))
    )
    span = (t1 - t0).unsqueeze(-1)
    slope = torch.where(span == 0, v0, (x1 - x0) / torch.where(span == 0, 1.0, span))
    x = torch.where(observed.unsqueeze(-1), state.x, x0 + (times - t0).unsqueeze(-1) * slope)
    return state._replace(x=x.masked_fill(~observed.any(1, keepdim=True).unsqueeze(-1), 0.0))


def at_frame(t: Tensor, frame: Tensor) -> Tensor:
    """The values of each node in its own frame, (B, L, N, c) and (B, N) -> (B, N, c)."""
    return t.gather(1, frame[:, None, :, None].expand(-1, 1, -1, t.shape[3])).squeeze(1)
