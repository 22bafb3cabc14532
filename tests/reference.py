"""The paper's equations, written as loops over their indices: slow, plain, and independent.

Every function takes one graph (no batch axis), a complete one, without masks.
"""

import math

import torch
from torch import Tensor

from spacetime_en import SET
from spacetime_en.nn.layers.egcl import EGCL, EGNN
from spacetime_en.nn.layers.se3_transformer import SE3_HEADS, SE3AttentionLayer
from spacetime_en.nn.layers.steerable import (
    SOFTENING,
    Message,
    SteerableLayer,
    SteerableLinear,
    SteerableNetwork,
    paths_of,
)


def egcl(layer: EGCL, h: Tensor, x: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Eq. 2 on one frame: h (N, w), x and v (N, n), a (N, N, e)."""
    N = len(h)
    new_h, new_x, new_v = [], [], []
    for i in range(N):
        m_i = torch.zeros_like(h[i])
        pull = torch.zeros_like(x[i])
        for j in range(N):
            if j == i:
                continue
            d = x[i] - x[j]
            m_ij = layer.phi_e(torch.cat([h[i], h[j], (d * d).sum()[None], a[i, j]]))
            pull = pull + d * layer.phi_x(m_ij)
            m_i = m_i + m_ij
        C = 1 / max(N - 1, 1)
        v_i = layer.phi_v(h[i]) * v[i] + C * pull
        h_i = layer.phi_h(torch.cat([h[i], m_i]))
        new_h.append(h[i] + h_i if layer.residual else h_i)
        new_x.append(x[i] + v_i)
        new_v.append(v_i)
    return torch.stack(new_h), torch.stack(new_x), torch.stack(new_v)


def egnn(net: EGNN, h: Tensor, x: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Eq. 4 on one frame."""
    h = torch.stack([net.embed(h_i) for h_i in h])
    for layer in net.layers:
        h, x, v = egcl(layer, h, x, v, a)
    return torch.stack([net.readout(h_i) for h_i in h]), x, v


# --- steerable features: for each degree l, (channels, 2 l + 1) -----------------------------------


def steerable_linear(layer: SteerableLinear, f: list[Tensor], outputs: list[int]) -> list[Tensor]:
    """Every output channel is a sum of input channels of its degree; scalars have a bias."""
    out, weights = [], layer.weight
    for deg, channels in enumerate(outputs):
        c = len(f[deg]) if deg < len(f) else 0
        w, weights = weights[: c * channels].view(c, channels), weights[c * channels :]
        bias = layer.bias if deg == 0 else torch.zeros(channels, dtype=w.dtype)
        for u in range(channels):
            total = bias[u] + torch.zeros(2 * deg + 1, dtype=w.dtype)
            for k in range(c):
                total = total + w[k, u] * f[deg][k] / math.sqrt(c)
            out.append(total)
    groups = iter(out)
    return [torch.stack([next(groups) for _ in range(channels)]) for channels in outputs]


def message(layer: Message, f_j: list[Tensor], d: Tensor, a_ij: Tensor) -> list[list[Tensor]]:
    """R(s_ij) f_j x Y(x_ij), for each path of :func:`paths_of` its channels."""
    from e3nn.o3 import spherical_harmonics, wigner_3j

    r = torch.sqrt((d * d).sum() + SOFTENING**2)
    R = layer.radial(torch.asinh(torch.cat([r[None], a_ij])))
    channels, out = len(f_j[0]), []
    for path, (deg, l1, l2) in enumerate(paths_of(len(f_j) - 1)):
        C = wigner_3j(l1, l2, deg, dtype=d.dtype)
        Y = spherical_harmonics(l2, d / r, normalize=False, normalization="component")
        parts = []
        for c in range(channels):
            part = torch.zeros(2 * deg + 1, dtype=d.dtype)
            for m1 in range(2 * l1 + 1):
                for m2 in range(2 * l2 + 1):
                    part = part + C[m1, m2] * f_j[l1][c, m1] * Y[m2]
            parts.append(R[path * channels + c] * math.sqrt(2 * deg + 1) * part)
        out.append(parts)
    return out


def tensor_field_sum(layer: SteerableLayer, i: int, f: list, x: Tensor, a: Tensor) -> list:
    """The mean of the messages to node i."""
    others = [j for j in range(len(f)) if j != i]
    came = [message(layer.value, f[j], x[i] - x[j], a[i, j]) for j in others]
    return [
        [sum(parts) / len(others) for parts in zip(*channels, strict=True)]
        for channels in zip(*came, strict=True)
    ]


def attended_sum(layer: SE3AttentionLayer, i: int, f: list, x: Tensor, a: Tensor) -> list:
    """The messages to node i, weighted by a softmax of q_i . k_ij in each head."""
    others, lmax, c = [j for j in range(len(f)) if j != i], len(f[i]) - 1, len(f[i][0])
    paths = paths_of(lmax)
    of_degree = [sum(path[0] == deg for path in paths) for deg in range(lmax + 1)]
    queries = steerable_linear(layer.query, f[i], [c * count for count in of_degree])
    q = [part for deg in range(lmax + 1) for part in queries[deg].view(of_degree[deg], c, -1)]
    keys = [message(layer.key, f[j], x[i] - x[j], a[i, j]) for j in others]
    values = [message(layer.value, f[j], x[i] - x[j], a[i, j]) for j in others]
    out = [[torch.zeros_like(part) for part in channels] for channels in values[0]]
    for head in range(SE3_HEADS):
        mine = [(path, u) for path in range(len(paths)) for u in range(c) if u % SE3_HEADS == head]
        size = sum(len(q[path][u]) for path, u in mine)
        if not mine:
            continue
        logits = [sum(q[p][u] @ key[p][u] for p, u in mine) / math.sqrt(size) for key in keys]
        for alpha, value in zip(softmax(logits), values, strict=True):
            for p, u in mine:
                out[p][u] = out[p][u] + alpha * value[p][u]
    return out


def steerable_layer(layer: SteerableLayer, f: list, x: Tensor, a: Tensor) -> list:
    """f_i <- gate(W f_i + W' sum_j ...) + f_i."""
    from e3nn.math import normalize2mom

    silu, sigmoid = (normalize2mom(act()).cst for act in (torch.nn.SiLU, torch.nn.Sigmoid))
    collected = attended_sum if isinstance(layer, SE3AttentionLayer) else tensor_field_sum
    new = []
    for i in range(len(f)):
        lmax, c = len(f[i]) - 1, len(f[i][0])
        sums = collected(layer, i, f, x, a)
        degrees = [path[0] for path in paths_of(lmax)]
        received = [
            torch.stack([u for s, k in zip(sums, degrees, strict=True) if k == deg for u in s])
            for deg in range(lmax + 1)
        ]
        inner = [c * (1 + lmax)] + [c] * lmax
        own, others = (
            steerable_linear(*pair, inner) for pair in ((layer.itself, f[i]), (layer.mix, received))
        )
        z = [one + other for one, other in zip(own, others, strict=True)]
        gates = z[0][c:].view(lmax, c, 1)
        out = [silu * z[0][:c] * torch.sigmoid(z[0][:c])]
        out += [sigmoid * torch.sigmoid(g) * t for g, t in zip(gates, z[1:], strict=True)]
        new.append([t + u if layer.residual else t for t, u in zip(out, f[i], strict=True)])
    return new


def steerable_network(
    net: SteerableNetwork, h: Tensor, x: Tensor, v: Tensor, a: Tensor, channels: int, lmax: int
) -> tuple[Tensor, Tensor, Tensor]:
    """A spatial part on one frame, as :func:`egnn`."""
    widths = [channels] * (lmax + 1)
    f = [
        steerable_linear(net.embed, [h_i[:, None], v_i[None]], widths)
        for h_i, v_i in zip(h, v, strict=True)
    ]
    for layer in net.layers:
        f = steerable_layer(layer, f, x, a)
    out = [steerable_linear(net.readout, f_i[:2], [h.shape[1], 2]) for f_i in f]
    new_h = torch.stack([scalars[:, 0] for scalars, _ in out])
    dx, dv = (torch.stack([vectors[k] for _, vectors in out]) for k in (0, 1))
    return new_h, x + dx, v + dv


def softmax(logits: list[Tensor]) -> list[Tensor]:
    largest = max(logits)
    terms = [(logit - largest).exp() for logit in logits]
    return [term / sum(terms) for term in terms]


def seen_frames(L: int, t: int, causal: bool) -> list[int]:
    return [s for s in range(L) if s <= t or not causal]


def qkv_attention(
    q: Tensor, k: Tensor, v: Tensor, series: Tensor, scaled: bool = True, causal: bool = False
) -> Tensor:
    """Eqs. 5-6 for one series (L, c), matrices (c, c)."""
    L, c = series.shape
    scale = 1 / math.sqrt(c) if scaled else 1.0
    out = []
    for t in range(L):
        frames = seen_frames(L, t, causal)
        alpha = softmax([scale * (q @ series[t]) @ (k @ series[s]) for s in frames])
        out.append(sum(w * (v @ series[s]) for w, s in zip(alpha, frames, strict=True)))
    return torch.stack(out)


def position_attention(x: Tensor, step: float, scaled: bool = True, causal: bool = False) -> Tensor:
    """Eqs. 7-8 for one node, (L, n)."""
    L, n = x.shape
    scale = 1 / math.sqrt(n) if scaled else 1.0
    out = []
    for t in range(L):
        frames = seen_frames(L, t, causal)
        beta = softmax([scale * (x[t] - x[s]).square().sum() for s in frames])
        moved = x[t].clone()
        for w, s in zip(beta, frames, strict=True):
            if s != t:
                moved = moved + step * w * (x[s] - x[t])
        out.append(moved)
    return torch.stack(out)


def velocity_attention(v: Tensor, scaled: bool = True, causal: bool = False) -> Tensor:
    """Eqs. 9-10 for one node, (L, n), with the exp that the numerator of gamma lacks."""
    L, n = v.shape
    scale = 1 / math.sqrt(n) if scaled else 1.0
    out = []
    for t in range(L):
        frames = seen_frames(L, t, causal)
        gamma = softmax([scale * v[t] @ v[s] for s in frames])
        out.append(sum(w * v[s] for w, s in zip(gamma, frames, strict=True)))
    return torch.stack(out)


def layer_norm(vector: Tensor) -> Tensor:
    mu = sum(vector) / len(vector)
    var = sum((c - mu) ** 2 for c in vector) / len(vector)
    return torch.stack([(c - mu) / torch.sqrt(var + 1e-5) for c in vector])


def sinusoid(t: int, channel: int, width: int) -> float:
    """App. D."""
    angle = t / 10_000 ** (2 * (channel // 2) / width)
    return math.sin(angle) if channel % 2 == 0 else math.cos(angle)


def encoding(L: int, width: int) -> Tensor:
    return torch.tensor([[sinusoid(t, c, width) for c in range(width)] for t in range(L)]).double()


def matrices(attention) -> tuple[Tensor, Tensor, Tensor]:
    return attention.q.weight, attention.k.weight, attention.v.weight


def set_forecast(model: SET, h: Tensor, x: Tensor, v: Tensor, A: Tensor) -> tuple[Tensor, Tensor]:
    """Algorithms 1 and 2 in eval mode: h (L, N, d), x and v (L, N, n), A (N, N, e)."""
    L, N, d = h.shape
    n, e = x.shape[-1], A.shape[-1]
    c = model.config
    options = {"scaled": c["scaled"], "causal": c["causal"]}
    A = torch.stack([A] * L)
    for block in model.blocks:
        a = torch.stack([edges(A[t], x[t]) for t in range(L)])  # (L, N, N, e + 1)
        frames = [egnn(block.egnn, h[t], x[t], v[t], a[t]) for t in range(L)]
        h, x, v = (torch.stack(parts) for parts in zip(*frames, strict=True))

        if "W" in c["encodings"]:
            h = h + encoding(L, d)[:, None]
        if "X" in c["encodings"]:
            x = x + encoding(L, n)[:, None]
        if "Y" in c["encodings"]:
            v = v + encoding(L, n)[:, None]
        if "Z" in c["encodings"]:
            z = encoding(L, N * N).view(L, N, N, 1)
            a = torch.cat([a[..., :e] + z, a[..., e:]], dim=-1)

        etal = block.temporal
        new_h, new_x, new_v = h.clone(), x.clone(), v.clone()
        for i in range(N):
            new_h[:, i] = qkv_attention(*matrices(etal.features), h[:, i], **options)
            if c["equivariant"]:
                new_x[:, i] = position_attention(x[:, i], c["step"], **options)
                new_v[:, i] = velocity_attention(v[:, i], **options)
            else:
                new_x[:, i] = qkv_attention(*matrices(etal.positions), x[:, i], **options)
                new_v[:, i] = qkv_attention(*matrices(etal.velocities), v[:, i], **options)
        h, x, v = new_h, new_x, new_v
        a = edge_attention(c["adjacency"], block.adjacency, a, options)

        f = model.feed_forward
        new_h, new_x, new_v, new_a = h.clone(), x.clone(), v.clone(), a.clone()
        for t in range(L):
            normed = a[t].clone()
            if c["adjacency"] == "nodes":  # App. D: over all N^2 entries of a channel
                for k in range(e + 1):
                    normed[..., k] = layer_norm(a[t, ..., k].flatten()).view(N, N)
            for i in range(N):
                new_h[t, i] = f.f_theta(layer_norm(h[t, i])) + h[t, i]
                if not c["equivariant"]:
                    new_x[t, i] = f.f_x(layer_norm(x[t, i])) + x[t, i]
                    new_v[t, i] = f.f_v(layer_norm(v[t, i])) + v[t, i]
                for j in range(N):
                    if c["adjacency"] != "nodes":
                        normed[i, j] = layer_norm(a[t, i, j])
                    new_a[t, i, j] = f.f_a(normed[i, j]) + a[t, i, j]
        h, x, v, A = new_h, new_x, new_v, new_a[..., :e]
    return sum(x) / L, sum(v) / L


def edge_attention(form: str | None, layer, a: Tensor, options: dict) -> Tensor:
    """Eqs. 11-12 in the four forms: a (L, N, N, c); the diagonal counts as 0."""
    if form is None:
        return a
    L, N, _, c = a.shape
    a = a * (1 - torch.eye(N, dtype=a.dtype))[..., None]
    out = torch.zeros_like(a)
    if form == "matrices":
        for k in range(c):
            out[..., k] = matrix_attention(*matrices(layer), a[..., k], **options)
        return out
    weights = matrices(layer.attention)
    if form == "nodes":
        for t in range(L):
            for k in range(c):
                q, key, v = (a[t, ..., k] @ w.T for w in weights)
                scale = 1 / math.sqrt(N) if options["scaled"] else 1.0
                out[t, ..., k] = torch.softmax(scale * q @ key.T, dim=-1) @ v
        return out
    pairs = [(i, j) for i in range(N) for j in range(N) if i != j]
    if form == "flattened":
        tokens = torch.stack([torch.cat([a[t, i, j] for i, j in pairs]) for t in range(L)])
        mixed = qkv_attention(*weights, tokens, **options).view(L, len(pairs), c)
        for k, (i, j) in enumerate(pairs):
            out[:, i, j] = mixed[:, k]
    else:
        for i, j in pairs:
            out[:, i, j] = qkv_attention(*weights, a[:, i, j], **options)
    return out


def matrix_attention(
    q: Tensor, k: Tensor, v: Tensor, A: Tensor, scaled: bool = True, causal: bool = False
) -> Tensor:
    """Eqs. 11-12 as printed, for one channel: A (L, N, N), matrices (N, N)."""
    L, N, _ = A.shape
    scale = 1 / math.sqrt(N) if scaled else 1.0
    queries, keys, values = ([w @ A[t] for t in range(L)] for w in (q, k, v))
    out = torch.zeros_like(A)
    for t in range(L):
        frames = seen_frames(L, t, causal)
        products = {s: scale * queries[t].T @ keys[s] for s in frames}
        pi = {s: torch.zeros_like(A[t]) for s in frames}
        for i in range(N):
            for j in range(N):
                entries = softmax([products[s][i, j] for s in frames])
                for s, entry in zip(frames, entries, strict=True):
                    pi[s][i, j] = entry
        out[t] = sum(pi[s] @ values[s] for s in frames)
    return out


def edges(A: Tensor, x: Tensor) -> Tensor:
    """E of Algorithm 1: (A_ij, |x_i - x_j|^2), (N, N, e + 1)."""
    N = len(x)
    rows = [
        torch.cat([A[i, j], (x[i] - x[j]).square().sum()[None]]) for i in range(N) for j in range(N)
    ]
    return torch.stack(rows).view(N, N, -1)
