"""A node's history as a few vectors: its path, projected onto polynomials in time.

The polynomials are orthonormal over the times at which a node was observed, so that each projection
adds what the previous ones miss: where the node was on average, how fast it went, how it turned.
They depend only on true times: the order of frames, uneven spacing and gaps need no special
treatment. The cost is O(L N).
"""

from __future__ import annotations

import torch
from torch import Tensor

from spacetime_en.graph import SpacetimeGraph
from spacetime_en.nn.state import State, at_frame


def orthonormal_polynomials(times: Tensor, weight: Tensor, degree: int) -> Tensor:
    """Polynomials p_0, ..., p_degree with sum_t w(t) p_j(t) p_k(t) = 1 if j = k, else 0.

    By Stieltjes' procedure: p_k is t p_{k-1} minus its projections onto the previous ones. With m
    times of weight 1 there are m of them; the others are 0.

    Args:
        times: (..., L).
        weight: 1 where a time counts and 0 elsewhere, (..., L).
    Returns: (..., degree + 1, L), 0 where the weight is.
    """
    count = weight.sum(-1, keepdim=True)
    found = [weight / count.clamp(min=1).sqrt()]
    for k in range(1, degree + 1):
        p = times * found[-1]
        for _ in range(2):  # (twice, to remove the rounding errors of the first pass)
            for q in found:
                p = p - (p * q).sum(-1, keepdim=True) * q
        length = p.square().sum(-1, keepdim=True).sqrt()
        enough = (count > k) & (length > 0)
        found.append(torch.where(enough, p / torch.where(enough, length, 1.0), 0.0))
    return torch.stack(found, dim=-2)


def history_vectors(graph: SpacetimeGraph, state: State, degree: int) -> Tensor:
    """The vectors of each node's history, (B, N, n, 2 degree + 3); 0 for padding.

    In order: the last velocity; the projections of displacements from the last observation, of
    degrees 0 to `degree`; and those of the velocities. All rotate with the graph and are invariant
    to translations.

    Args:
        graph: L frames of N nodes.
        state: of the graph, in the model's units, 0 wherever nothing was observed.
    """
    last = graph.last_observed
    times = -graph.since.unsqueeze(1)  # (B, 1, L)
    weight = torch.ones_like(times)
    if graph.observed is not None:
        weight = graph.observed.mT.to(times)  # (B, N, L)
        times = times.expand_as(weight).masked_fill(weight == 0, 0.0)
    # Scaled to [-1, 0], because powers of small times would lose their digits.
    times = times / times.abs().amax(-1, keepdim=True).clamp(min=1e-300)
    p = orthonormal_polynomials(times, weight, degree).to(state.x)  # (B, 1 or N, degree + 1, L)
    p = p.expand(-1, state.x.shape[2], -1, -1)
    v = at_frame(state.v, last)  # (B, N, n)
    # (Where nothing was observed, p is 0, whatever the displacement.)
    displacements = state.x - at_frame(state.x, last).unsqueeze(1)
    projections = [torch.einsum("bnkl,blnc->bnck", p, t) for t in (displacements, state.v)]
    return torch.cat([v.unsqueeze(-1), *projections], dim=-1)
