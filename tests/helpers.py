"""Graphs and models shared by the tests."""

from typing import Any

import torch
from torch import Tensor

from spacetime_en import Forecaster, SpacetimeGraph

# Small enough to be quick, with the structure of the paper's: several layers and blocks.
SMALL: dict[str, Any] = {"hidden": 16, "layers": 2, "blocks": 2}


def particles(
    B: int = 3,
    L: int = 3,  # 1/3 is exact in no precision, so that a cast in a mean shows
    N: int = 4,
    n: int = 3,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    **fields: Any,
) -> SpacetimeGraph:
    """Random charged particles."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(B, L, N, n, generator=g, dtype=torch.float64)
    v = torch.randn(B, L, N, n, generator=g, dtype=torch.float64)
    charge = torch.randint(0, 2, (B, N), generator=g) * 2 - 1
    return SpacetimeGraph.from_particles(x.to(dtype), v.to(dtype), charge, **fields)


def masked(**sizes: Any) -> SpacetimeGraph:
    """Particles with holes: nodes that are missing in some frames, in all, or in the last one.

    Frames are missing for all nodes, too. There is NaN in all of these places.
    """
    graph = particles(**({"L": 5, "N": 5} | sizes))
    g = torch.Generator().manual_seed(5)
    holes = torch.rand(graph.x.shape[:3], generator=g) < 0.3
    holes[:, :, 0] = False
    holes[0, -1, 1] = holes[0, 0, 2] = True
    return with_gaps(graph, there_in_whole_frames(graph) & ~holes)


def padded(**sizes: Any) -> SpacetimeGraph:
    """Particles with some nodes and some frames missing altogether, and no other gaps."""
    graph = particles(**({"L": 5, "N": 5} | sizes))
    return with_gaps(graph, there_in_whole_frames(graph))


def there_in_whole_frames(graph: SpacetimeGraph) -> Tensor:
    """The mask of the nodes of three graphs with 0, 1 and 2 nodes and 0, 2 and 1 frames missing."""
    _, L, N, _ = graph.x.shape
    nodes = torch.arange(N) < torch.tensor([N, N - 1, N - 2])[:, None]
    frames = torch.ones(3, L, dtype=torch.bool)
    frames[1, 0] = frames[1, 2] = frames[2, -1] = False
    return nodes[:, None, :] & frames[:, :, None]


def with_gaps(graph: SpacetimeGraph, observed: Tensor) -> SpacetimeGraph:
    """The graph with NaN where a node was not `observed`, (B, L, N)."""
    x, v = (t.masked_fill(~observed[..., None], torch.nan) for t in (graph.x, graph.v))
    return graph.replace(x=x, v=v, observed=observed)


def random_neighbours(N: int, K: int, *leading: int, seed: int = 0) -> Tensor:
    """K distinct neighbours of each node, the last place of some unused, (*leading, N, K)."""
    g = torch.Generator().manual_seed(seed)
    order = torch.rand(*leading, N, N - 1, generator=g).argsort(-1)[..., :K]
    others = order + (order >= torch.arange(N)[:, None])  # skip the node itself
    others[..., ::2, -1] = -1
    return others


def is_aligned(tensors: dict[str, Tensor]) -> bool:
    """Whether all of them are aligned as torch aligns its own tensors."""
    return bool(tensors) and all(tensor.data_ptr() % 64 == 0 for tensor in tensors.values())


def liven(model: Forecaster, seed: int = 0) -> Forecaster:
    """Scale weights up so that every part of the model shows in its forecast.

    Freshly built models forecast velocities near 0: phi_x starts at 0.001 of the usual size, and
    each layer multiplies velocities by a small phi_v.
    """
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=g, dtype=torch.float64).to(p)
            if name.endswith("phi_x.2.weight") or name.endswith("phi.4.weight"):
                p.copy_(noise * p.shape[1] ** -0.5)
            elif name.endswith("phi_v.2.bias"):
                p.fill_(0.8)
            elif name == "gamma":
                p.fill_(0.3)
    return model


def assert_lively(model: Forecaster, graph: SpacetimeGraph) -> None:
    """The forecast is large enough for a relative error to mean something."""
    forecast = model(graph)
    assert forecast.v.abs().max() > 0.05
    if graph.x.shape[2] > 1:
        assert (forecast.x - forecast.x.mean(2, keepdim=True)).abs().max() > 0.05


def train_a_little(model: Forecaster, graph: SpacetimeGraph, steps: int = 3) -> None:
    """A few steps of Adam towards random targets."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    g = torch.Generator().manual_seed(1)
    target = torch.randn(graph.x[:, :1].shape, generator=g, dtype=torch.float64).to(graph.x)
    for _ in range(steps):
        forecast = model(graph)
        loss = (forecast.x - target).square().mean() + (forecast.v - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
