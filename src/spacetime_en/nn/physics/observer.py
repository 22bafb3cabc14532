"""Where things may have been, given a window of noisy frames.

The mean over the frames is the state at their mean time, and how far the frames scatter about it
says how well it is known. States that the window leaves possible are mixtures of that scatter with
fixed random numbers, the same for all nodes: they turn, move and permute with the window, so that
nothing random breaks a symmetry.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from spacetime_en.graph import SpacetimeGraph
from spacetime_en.nn.state import State, mean_over_time

LONGEST = 256  # frames with random numbers of their own; longer windows use them again


class WindowStatistics(NamedTuple):
    """What a window of m observed frames shows.

    Args:
        x, v: means over the frames, (B, N, n).
        nodes: 1 where a node exists, 0 for padding, (B, N, 1).
        centre: the mean of x over the nodes, (B, 1, n) (in a box x itself, (B, N, n)).
        off_x, off_v: how far the frames are from motion at constant velocity, (B, L, N, n), over
            sqrt(m - 1): a mixture with standard normal numbers is like the noise of a frame.
        frames: m, (B, 1, 1, 1).
        size_x, size_v: standard deviations of the noise of a frame, (B, 1, 1, 1).
        before: how long the mean time of the frames is before the last of them, (B,).
    """

    x: Tensor
    v: Tensor
    nodes: Tensor
    centre: Tensor
    off_x: Tensor
    off_v: Tensor
    frames: Tensor
    size_x: Tensor
    size_v: Tensor
    before: Tensor

    @classmethod
    def of(cls, graph: SpacetimeGraph, state: State, time: float) -> WindowStatistics:
        """The statistics of `graph`; `state` holds it in units of which `time` is one."""
        B, L, N, _ = state.x.shape
        seen = state.x.new_ones(B, L) if graph.frame_mask is None else graph.frame_mask.to(state.x)
        nodes = state.x.new_ones(B, N) if graph.node_mask is None else graph.node_mask.to(state.x)
        nodes = nodes.unsqueeze(-1)  # (B, N, 1)
        m = seen.sum(1)
        last = graph.times.gather(1, graph.last_frame[:, None])
        age = ((last - graph.times) / time).to(state.x)  # (B, L)
        before = (age * seen).sum(1) / m
        x, v = (mean_over_time(t, graph.frame_mask) for t in (state.x, state.v))
        count = nodes.sum(1, keepdim=True)
        centre = (x * nodes).sum(1, keepdim=True) / count
        if graph.box is not None:  # there is no centre: every node is its own
            centre = x
        moved = (before[:, None] - age)[..., None, None] * v[:, None]
        share = seen / (m - 1).clamp(min=1).sqrt()[:, None]  # (a single frame has no scatter)
        off_x = (state.x - x[:, None] - moved) * share[..., None, None]
        off_v = (state.v - v[:, None]) * share[..., None, None]
        size_x, size_v = (
            (
                off.square().mean(3, keepdim=True).sum((1, 2), keepdim=True) / count.unsqueeze(1)
            ).sqrt()
            for off in (off_x, off_v)  # (0 for padded nodes)
        )
        return cls(x, v, nodes, centre, off_x, off_v, m.view(-1, 1, 1, 1), size_x, size_v, before)


class Observer(nn.Module):
    """States that a window leaves possible, at its mean time, by four learned numbers.

    Two say how far the means are to be trusted, those of positions relative to the centroid and
    those of velocities: what looks extreme is more often extreme noise. Two say how far the states
    lie about them, in standard errors.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shrinkage_logit = nn.Parameter(torch.full((2,), 3.0))
        self.log_spread = nn.Parameter(torch.zeros(2))

    def forward(self, statistics: WindowStatistics, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Positions and velocities of K states, (B, K, N, n) each.

        Args:
            numbers: standard normal, to mix the scatter of x and of v, (2, B, K, L), or with
                B = 1 the same for all graphs.
        """
        shrinkage, spread = self.shrinkage_logit.sigmoid(), self.log_spread.exp()
        x = statistics.centre + shrinkage[0] * (statistics.x - statistics.centre)
        v = shrinkage[1] * statistics.v
        c = spread[:, None, None, None] * numbers
        error_x, error_v = (
            torch.einsum("bkl,blnc->bknc", c[i].expand(x.shape[0], -1, -1), off)
            * statistics.frames.rsqrt()
            for i, off in enumerate((statistics.off_x, statistics.off_v))
        )
        return x[:, None] + error_x, v[:, None] + error_v

    @torch.no_grad()
    def calibrate(self, statistics: WindowStatistics) -> None:
        """Begin with what scatter and spread of graphs say.

        The shrinkage is signal over signal and noise. The states of a normal signal in normal
        noise, given the mean, have a standard deviation of sqrt(shrinkage) standard errors.
        """
        count = statistics.nodes.sum(1)
        free = (count - 1).sum() * statistics.x.shape[-1]  # (the centre is of the same nodes)
        if free == 0 or not statistics.off_x.any():
            return
        seen_x = ((statistics.x - statistics.centre).square() * statistics.nodes).sum() / free
        seen_v = (statistics.v.square() * statistics.nodes).sum() / (
            count.sum() * statistics.x.shape[-1]
        )
        sizes = (statistics.size_x, statistics.size_v)
        noise = [(size.square() / statistics.frames).mean() for size in sizes]
        shrinkage = 1 - torch.stack(noise) / torch.stack([seen_x, seen_v])
        shrinkage = shrinkage.nan_to_num(1.0).clamp(0.05, 0.999)
        self.shrinkage_logit.copy_(shrinkage.logit())
        self.log_spread.copy_(shrinkage.log() / 2)


def standard_normal(members: int) -> Tensor:
    """The same random numbers ever again, for x and v and a long window, (2, 1, K, LONGEST).

    They come in pairs of opposite sign, so that states lie about their mean, and every frame's
    have mean square 1.
    """
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(2, 1, members // 2, LONGEST, generator=generator, dtype=torch.float64)
    half = half / half.square().mean(2, keepdim=True).sqrt()
    return torch.cat([half, -half], dim=2)
