"""The sums of messages in Eq. 2, which take nearly all of a model's time and memory.

    m_ij = phi_e(h_i, h_j, s_ij),    m_i = sum_j m_ij,    pull_i = sum_j x_ij phi_x(m_ij),

where s_ij = (|x_ij|^2, a_ij) are the few scalars of an edge. phi_e begins with a Linear on all
three arguments; its weight is split into their columns, so that the wide products are computed once
per node instead of once per edge, and nothing is concatenated:

    phi_e = SiLU(W2 SiLU(p_i + q_j + Ws s_ij) + b2),    p = Wi h + b1,    q = Wj h,
    phi_x(m) = u SiLU(Wx m + bx).

Edges that do not exist (self-loops, padding) are left out. The others are processed in chunks that
stay in the processor's caches, and nothing is kept for the backward pass, which recomputes each
chunk: that costs less than fetching it from memory, and memory does not grow with the width times
the number of edges. The gradient is written out, because autograd on each chunk takes longer. On a
CPU each chunk runs on one thread (:mod:`spacetime_en._util.threads`). All edges of a receiver are
in one chunk, so that no other thread writes to its row, and gradients shared by chunks are added in
the order of the chunks: results are bitwise reproducible.

:func:`reference_messages` does the same in a few lines. The tests compare with it, and it is used
where the custom operation cannot run: in ``torch.export``, whose programs do not depend on this
package, in ``torch.func``, in forward-mode AD, and for second derivatives.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from spacetime_en._util.threads import InOrder, share
from spacetime_en.nn.layers.pieces import gradients

# Approximate size of the (edges, width) tensors of a chunk: on a CPU they fit into its caches,
# elsewhere this only bounds the memory.
CPU_CHUNK_BYTES = 10 * 2**20
OTHER_CHUNK_BYTES = 2 * 2**30
FORWARD, BACKWARD = 2, 7  # number of such tensors in a pass


class Edges(NamedTuple):
    """The edges i <- j of all frames, for R = BLN receivers with K neighbours each.

    Args:
        s: their scalars, (R, K, c).
        x: differences x_i - x_j, (R, K, n).
        senders: the row index of j, (R, K).
        mask: True where the edge exists, (R, K).
    """

    s: Tensor
    x: Tensor
    senders: Tensor
    mask: Tensor


class Weights(NamedTuple):
    """The weights of phi_e, without the columns for the nodes, and of phi_x.

    Args:
        ws: (width, c).
        w2, b2, wx, bx: (width, width) and (width,).
        u: (1, width).
    """

    ws: Tensor
    w2: Tensor
    b2: Tensor
    wx: Tensor
    bx: Tensor
    u: Tensor


def reference_messages(
    p: Tensor, q: Tensor, edges: Edges, weights: Weights
) -> tuple[Tensor, Tensor]:
    """A direct implementation, for all edges at once; see :func:`summed_messages`.

    Here even edges that do not exist must have finite values.
    """
    ws, w2, b2, wx, bx, u = weights
    mask = edges.mask.unsqueeze(-1)
    e = p.unsqueeze(1) + F.linear(edges.s, ws)  # (R, K, width)
    e = e if q.shape[0] == 0 else e + q[edges.senders]
    m = F.silu(F.linear(F.silu(e), w2, b2)) * mask
    phi_x = F.linear(F.silu(F.linear(m, wx, bx)), u)  # (R, K, 1)
    return m.sum(1), (edges.x * phi_x * mask).sum(1)


def summed_messages(p: Tensor, q: Tensor, edges: Edges, weights: Weights) -> tuple[Tensor, Tensor]:
    """m_i and pull_i of every node.

    Args:
        p, q: the first Linear of phi_e applied to the nodes as i and as j, (R, width); or its bias
            (1, width) and an empty (0, width), if s_ij already includes all node features.
    Returns: (R, width) and (R, n).
    """
    if torch.compiler.is_exporting() or _is_transformed():
        return reference_messages(p, q, edges, weights)
    if torch.is_autocast_enabled(p.device.type):
        low = torch.get_autocast_dtype(p.device.type)
        p, q, edges = p.to(low), q.to(low), edges._replace(s=edges.s.to(low))
        weights = Weights(*(w.to(low) for w in weights))
    m_i, pull = _sums(p, q, list(edges), list(weights))
    return m_i, pull


def _is_transformed() -> bool:
    """Whether torch.func or forward-mode AD is active, which custom operations do not support."""
    if torch.compiler.is_compiling():
        return False
    return (
        torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def runs_eagerly() -> bool:
    """Whether code runs eagerly: not compiled, exported, transformed or autocast."""
    if torch.compiler.is_compiling() or _is_transformed():
        return False
    return not torch.is_autocast_enabled("cpu")


# To torch.compile, each pass is a single operation.


@torch.library.custom_op("spacetime_en::summed_messages", mutates_args=())
def _sums(
    p: Tensor, q: Tensor, edges: list[Tensor], weights: list[Tensor]
) -> tuple[Tensor, Tensor]:
    (s, x, senders, mask), (ws, w2, b2, wx, bx, u) = edges, weights
    m_i, pull = _zeros(x, len(x), p.shape[1]), _zeros(x, len(x), x.shape[2])
    dtype = x.dtype  # (in mixed precision, that of the positions and of the sums)
    s, x = s.flatten(0, 1), x.flatten(0, 1)
    ws, w2, wx, u = ws.t(), w2.t(), wx.t(), u.t()

    def work(chunks: Iterator[Chunk]) -> None:
        for (_, at, i, j), (e, m) in _with_buffers(chunks, p, FORWARD):
            _first_linear(p, q, i, j, s.index_select(0, at), ws, out=e, scratch=m)
            torch.mm(_silu(e, out=e), w2, out=m).add_(b2)
            m_i.index_add_(0, i, _silu(m, out=m).to(m_i.dtype))
            torch.mm(m, wx, out=e).add_(bx)
            phi_x = _silu(e, out=e) @ u
            pull.index_add_(0, i, (x.index_select(0, at) * phi_x).to(pull.dtype))

    _on_threads(_chunks(senders, mask, p, FORWARD), work, p)
    return m_i.to(dtype), pull.to(dtype)


@torch.library.custom_op("spacetime_en::summed_messages_backward", mutates_args=())
def _sums_backward(
    d_m_i: Tensor, d_pull: Tensor, p: Tensor, q: Tensor, edges: list[Tensor], weights: list[Tensor]
) -> list[Tensor]:
    """The gradients d_p, d_q, d_s and d_x, then those of the weights."""
    (s, x, senders, mask), (ws, w2, b2, wx, bx, u) = edges, weights
    d_p, d_q, d_s, d_x = _zeros(p, *p.shape), _zeros(q, *q.shape), *map(torch.zeros_like, (s, x))
    d = [_zeros(w, *w.shape) for w in weights]
    s, x, d_s_ij, d_x_ij = (t.flatten(0, 1) for t in (s, x, d_s, d_x))
    ws_t = ws.t().contiguous()  # (this layout makes narrow products three times as fast)

    def add(gradients: tuple[Tensor, Tensor, Weights]) -> None:
        j, d_e, d_weights = gradients
        if len(q):
            d_q.index_add_(0, j, d_e.to(d_q.dtype))
        else:
            d_p.add_(d_e.sum(0))
        for total, part in zip(d, d_weights, strict=True):
            total.add_(part)

    shared = InOrder(add)

    def work(chunks: Iterator[Chunk]) -> None:
        for (number, at, i, j), (e1, y1, e2, m, ex, yx) in _with_buffers(chunks, p, BACKWARD - 1):
            # Recompute the forward pass, keeping the values before and after each SiLU.
            s_ij = s.index_select(0, at)
            _first_linear(p, q, i, j, s_ij, ws_t, out=e1, scratch=y1)
            torch.mm(_silu(e1, out=y1), w2.t(), out=e2).add_(b2)
            torch.mm(_silu(e2, out=m), wx.t(), out=ex).add_(bx)
            _silu(ex, out=yx)
            # pull_i = sum_j x_ij (u yx)
            along = d_pull.index_select(0, i)
            d_x_ij.index_copy_(0, at, along * (yx @ u.t()))
            d_phi_x = (along * x.index_select(0, at)).sum(1, keepdim=True).to(p.dtype)
            d_u = d_phi_x.t() @ yx
            d_e = torch.empty_like(ex)  # (no shared buffer: it may have to wait its turn)
            _silu_backward(u.expand_as(ex), ex, out=d_e).mul_(d_phi_x)
            # ex = Wx m + bx, m_i = sum_j m_ij
            d_wx, d_bx = d_e.t() @ m, d_e.sum(0)
            d_m = _rows(d_m_i, i, out=yx).addmm_(d_e, wx)
            _silu_backward(d_m, e2, out=d_m)
            # e2 = W2 y1 + b2
            d_w2, d_b2 = d_m.t() @ y1, d_m.sum(0)
            _silu_backward(torch.mm(d_m, w2, out=d_e), e1, out=d_e)
            # e1 = p_i + q_j + Ws s_ij
            if len(q):
                d_p.index_add_(0, i, d_e.to(d_p.dtype))
            d_s_ij.index_copy_(0, at, d_e @ ws_t.t())
            d_ws = (s_ij.t() @ d_e).t()
            shared.put(number, (j, d_e, Weights(d_ws, d_w2, d_b2, d_wx, d_bx, d_u)))

    _on_threads(_chunks(senders, mask, p, BACKWARD), work, p)
    return [d_p.to(p.dtype), d_q.to(q.dtype), d_s, d_x, *(t.to(p.dtype) for t in d)]


def _zeros(like: Tensor, *shape: int) -> Tensor:
    """Zeros to accumulate into, in single precision or higher.

    In half precision sums lose most digits, and on a CPU index_add_ rewrites all rows, including
    those that other threads are adding to.
    """
    return like.new_zeros(shape, dtype=torch.promote_types(like.dtype, torch.float32))


class Chunk(NamedTuple):
    """Existing edges: all those of some receivers.

    Args:
        number: index of the chunk, from 0.
        at: indices of its edges among all, (E,).
        i, j: receivers and senders, (E,).
    """

    number: int
    at: Tensor
    i: Tensor
    j: Tensor


def _chunks(senders: Tensor, mask: Tensor, p: Tensor, buffers: int) -> list[Chunk]:
    """The existing edges, in chunks."""
    at = mask.flatten().nonzero().squeeze(1)
    i, j = at // max(mask.shape[1], 1), senders.flatten().index_select(0, at)
    limit = CPU_CHUNK_BYTES if p.device.type == "cpu" else OTHER_CHUNK_BYTES
    count = number_of_chunks(len(at) * p.shape[1] * p.element_size() * buffers, limit)
    cuts = i[torch.arange(1, count, device=i.device) * len(at) // count]
    begins = torch.searchsorted(i, cuts).tolist()  # where the edges of these receivers begin
    parts = zip(*(t.tensor_split(begins) for t in (at, i, j)), strict=True)
    return [Chunk(k, *part) for k, part in enumerate(part for part in parts if len(part[0]))]


def number_of_chunks(size: int, limit: int) -> int:
    """How many chunks of at most `limit` bytes: one, or a multiple of four, for four threads."""
    return 1 if size <= limit else 4 * -(-size // (4 * limit))


def _with_buffers(
    chunks: Iterator[Chunk], p: Tensor, buffers: int
) -> Iterator[tuple[Chunk, list[Tensor]]]:
    """Each chunk with work buffers (E, width), which the next chunk reuses.

    Buffers are allocated separately, because the bits of products depend on their alignment.
    """
    allocated: list[Tensor] = []
    for chunk in chunks:
        E = len(chunk.at)
        if not allocated or len(allocated[0]) < E:
            allocated = [p.new_empty(E, p.shape[1]) for _ in range(buffers)]
        yield chunk, [buffer[:E] for buffer in allocated]


def _on_threads(chunks: list[Chunk], work: Callable[[Iterator[Chunk]], None], p: Tensor) -> None:
    share(chunks, work) if p.device.type == "cpu" else work(iter(chunks))


def _first_linear(
    p: Tensor, q: Tensor, i: Tensor, j: Tensor, s: Tensor, ws: Tensor, out: Tensor, scratch: Tensor
) -> None:
    """p_i + q_j + Ws s_ij."""
    if len(q):
        _rows(p, i, out=out).add_(_rows(q, j, out=scratch)).addmm_(s, ws)
    else:
        torch.mm(s, ws, out=out).add_(p)


def _rows(t: Tensor, i: Tensor, out: Tensor) -> Tensor:
    """Rows i of t, in the dtype of `out`."""
    if t.dtype == out.dtype:
        return torch.index_select(t, 0, i, out=out)
    return out.copy_(t.index_select(0, i))


def _silu(t: Tensor, out: Tensor) -> Tensor:
    result: Tensor = torch.ops.aten.silu.out(t, out=out)
    return result


def _silu_backward(gradient: Tensor, before: Tensor, out: Tensor) -> Tensor:
    """The gradient with respect to the input of a SiLU, from that of its output."""
    result: Tensor = torch.ops.aten.silu_backward.grad_input(gradient, before, grad_input=out)
    return result


# --- registration with torch.compile and autograd -----------------------------------------------


@_sums.register_fake
def _(p: Tensor, q: Tensor, edges: list[Tensor], weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    x = edges[1]
    R, width = x.shape[0], p.shape[1]  # (len() would fix the size)
    return x.new_empty(R, width), x.new_empty(R, x.shape[2])


@_sums_backward.register_fake
def _(
    d_m_i: Tensor, d_pull: Tensor, p: Tensor, q: Tensor, edges: list[Tensor], weights: list[Tensor]
) -> list[Tensor]:
    return [t.new_empty(t.shape) for t in (p, q, *edges[:2], *weights)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    p, q, edges, weights = inputs
    ctx.save_for_backward(p, q, *edges, *weights)


def _gradients(ctx: Any, d_m_i: Tensor, d_pull: Tensor) -> tuple[Any, ...]:
    p, q, *rest = ctx.saved_tensors
    edges, weights = rest[:4], rest[4:]
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        # For second derivatives (``create_graph``), differentiate :func:`reference_messages`.
        outputs = reference_messages(p, q, Edges(*edges), Weights(*weights))
        wanted = (p, q, *edges[:2], *weights)
        d_p, d_q, d_s, d_x, *d = gradients(outputs, wanted, (d_m_i, d_pull), create_graph=True)
    else:
        d_p, d_q, d_s, d_x, *d = _sums_backward(d_m_i, d_pull, p, q, edges, weights)
    return d_p, d_q, [d_s, d_x, None, None], d


_sums.register_autograd(_gradients, setup_context=_setup)
