"""Initial conditions that are consistent with a window of noisy frames.

The mean over the frames estimates the state at their mean time, and the scatter of the frames about
it says how uncertain it is. Samples of the initial conditions are mixtures of that scatter with
fixed random numbers, the same for all nodes: they rotate, translate and permute with the window, so
that sampling breaks no symmetry.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from spacetime_en.graph import SpacetimeGraph
from spacetime_en.nn.state import State, mean_over_time

MAX_FRAMES = 256  # with random numbers of their own; longer windows use them again


class WindowStatistics(NamedTuple):
    """Statistics of a window in which a node was observed in m frames.

    Args:
        x, v: means over the frames, (B, N, n).
        nodes: 1 where a node exists, 0 for padding, (B, N, 1).
        centre: the mean of x over the nodes, (B, 1, n) (in a box x itself, (B, N, n)).
        residual_x, residual_v: residuals of the frames from motion at constant velocity, divided
            by sqrt(m - 1), (B, L, N, n): weighted with standard normal numbers, their sum is
            distributed like the noise of a frame.
        frames: m, (B, 1, N, 1).
        noise_x, noise_v: standard deviations of the noise of a frame, (B, 1, 1, 1).
        mean_age: the time from the mean time of the frames to the last of them, (B,).
    """

    x: Tensor
    v: Tensor
    nodes: Tensor
    centre: Tensor
    residual_x: Tensor
    residual_v: Tensor
    frames: Tensor
    noise_x: Tensor
    noise_v: Tensor
    mean_age: Tensor

    @classmethod
    def of(cls, graph: SpacetimeGraph, state: State, time: float) -> WindowStatistics:
        """The statistics of `graph`, whose `state` is in units of `time`."""
        B, L, N, _ = state.x.shape
        observed = state.x.new_ones(B, L, N)
        if graph.observed is not None:
            observed = graph.observed.to(state.x)
        nodes = observed.amax(1).unsqueeze(-1)  # (B, N, 1)
        m = observed.sum(1)  # (B, N)
        age = (graph.since / time).to(state.x).unsqueeze(-1)  # (B, L, 1)
        own_age = (age * observed).sum(1) / m.clamp(min=1)  # (B, N)
        frames = observed.amax(2)
        mean_age = (age.squeeze(-1) * frames).sum(1) / frames.sum(1)  # (B,)
        x, v = (mean_over_time(t, graph.observed) for t in (state.x, state.v))
        moved = (own_age.unsqueeze(1) - age).unsqueeze(-1) * v[:, None]  # (B, L, N, n)
        weight = observed / (m - 1).clamp(min=1).sqrt()[:, None]  # (a single frame has no scatter)
        residual_x = (state.x - x[:, None] - moved) * weight.unsqueeze(-1)
        residual_v = (state.v - v[:, None]) * weight.unsqueeze(-1)
        if graph.observed is not None:  # from a node's mean time to that of all
            x = x + (own_age - mean_age[:, None]).unsqueeze(-1) * v
        count = nodes.sum(1, keepdim=True)
        centre = (x * nodes).sum(1, keepdim=True) / count
        if graph.box is not None:  # there is no centre, and positions do not shrink
            centre = x
        scattered = (m > 1).to(m).sum(1).clamp(min=1).view(-1, 1, 1, 1)  # nodes that show noise
        noise_x, noise_v = (
            (t.square().mean(3, keepdim=True).sum((1, 2), keepdim=True) / scattered).sqrt()
            for t in (residual_x, residual_v)  # (0 for the others)
        )
        m = m.clamp(min=1)[:, None, :, None]
        return cls(x, v, nodes, centre, residual_x, residual_v, m, noise_x, noise_v, mean_age)


class Observer(nn.Module):
    """Samples of the initial conditions at the mean time of a window, by four learned numbers.

    Two are shrinkages, of positions towards their centroid and of velocities towards 0, because
    extreme means owe more to extreme noise. Two are the spreads of the samples, in standard errors.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shrinkage_logit = nn.Parameter(torch.full((2,), 3.0))
        self.log_spread = nn.Parameter(torch.zeros(2))

    def forward(self, statistics: WindowStatistics, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Positions and velocities of K samples, (B, K, N, n) each.

        Args:
            draws: standard normal weights of the residuals of x and of v, (2, B, K, L), or with
                B = 1 the same for all graphs.
        """
        shrinkage, spread = self.shrinkage_logit.sigmoid(), self.log_spread.exp()
        x = statistics.centre + shrinkage[0] * (statistics.x - statistics.centre)
        v = shrinkage[1] * statistics.v
        c = spread[:, None, None, None] * draws
        error_x, error_v = (
            torch.einsum("bkl,blnc->bknc", c[i].expand(x.shape[0], -1, -1), residual)
            * statistics.frames.rsqrt()
            for i, residual in enumerate((statistics.residual_x, statistics.residual_v))
        )
        return x[:, None] + error_x, v[:, None] + error_v

    @torch.no_grad()
    def calibrate(self, statistics: WindowStatistics) -> None:
        """Set the four numbers to what the scatter within windows and the spread of means suggest.

        The shrinkage is the variance of the signal over that of signal and noise. Given the mean,
        a normal signal in normal noise has a standard deviation of sqrt(shrinkage) standard errors.
        """
        count = statistics.nodes.sum(1)
        freedom = (count - 1).sum() * statistics.x.shape[-1]  # (the centre is of the same nodes)
        if freedom == 0 or not statistics.residual_x.any():
            return
        total_x = ((statistics.x - statistics.centre).square() * statistics.nodes).sum() / freedom
        total_v = (statistics.v.square() * statistics.nodes).sum() / (
            count.sum() * statistics.x.shape[-1]
        )
        deviations = (statistics.noise_x, statistics.noise_v)
        weight = statistics.nodes.unsqueeze(1) / statistics.nodes.sum()
        noise = [(weight * d.square() / statistics.frames).sum() for d in deviations]
        shrinkage = 1 - torch.stack(noise) / torch.stack([total_x, total_v])
        shrinkage = shrinkage.nan_to_num(1.0).clamp(0.05, 0.999)
        self.shrinkage_logit.copy_(shrinkage.logit())
        self.log_spread.copy_(shrinkage.log() / 2)


def standard_normal(members: int) -> Tensor:
    """Fixed random numbers for x and v in every frame of a long window, (2, 1, K, MAX_FRAMES).

    They come in pairs of opposite sign, so that samples are centred on their mean, and have mean
    square 1 in every frame.
    """
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(2, 1, members // 2, MAX_FRAMES, generator=generator, dtype=torch.float64)
    half = half / half.square().mean(2, keepdim=True).sqrt()
    return torch.cat([half, -half], dim=2)
