import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch.autograd import forward_ad

from spacetime_en import build_model
from spacetime_en.nn.layers import messages
from spacetime_en.nn.layers.messages import Edges, Weights, reference_messages, summed_messages
from tests.helpers import SMALL, liven, particles, random_neighbours


def case(R=6, K=4, width=5, c=3, n=3, seed=0, dtype=torch.float64, grad=True, nodes=True):
    """Rows p and q (or a bias, if not `nodes`), edges some of which do not exist, and weights."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=draw, dtype=dtype).requires_grad_(grad)

    edges = Edges(
        s=normal(R, K, c),
        x=normal(R, K, n),
        senders=torch.randint(0, max(R, 1), (R, K), generator=draw),
        mask=torch.rand(R, K, generator=draw) < 0.7,
    )
    w = width
    weights = Weights(normal(w, c), normal(w, w), normal(w), normal(w, w), normal(w), normal(1, w))
    rows = (R, R) if nodes else (1, 0)
    return normal(rows[0], width), normal(rows[1], width), edges, weights


@pytest.fixture
def small_chunks(monkeypatch):
    """In the backward pass five edges of width 5 in double precision."""
    monkeypatch.setattr(messages, "CPU_CHUNK_BYTES", messages.BACKWARD * 5 * 5 * 8)


def sums_and_gradients(p, q, edges, weights):
    found = summed_messages(p, q, edges, weights)
    inputs = (p, q, edges.s, edges.x, *weights)
    return [*found, *torch.autograd.grad(sum(t.sin().sum() for t in found), inputs)]


@given(
    R=st.integers(1, 7),
    K=st.integers(0, 5),
    width=st.integers(1, 6),
    n=st.integers(1, 3),
    edges_in_a_chunk=st.integers(1, 40),
    nodes=st.booleans(),
    seed=st.integers(0, 999),
)
@settings(deadline=None, max_examples=40)
def test_chunks_sum_what_the_equations_say(R, K, width, n, edges_in_a_chunk, nodes, seed):
    p, q, edges, weights = case(R, K, width, n=n, seed=seed, nodes=nodes)
    inputs = (p, q, edges.s, edges.x, *weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "CPU_CHUNK_BYTES", messages.BACKWARD * edges_in_a_chunk * width * 8)
        found = summed_messages(p, q, edges, weights)
        found_d = torch.autograd.grad(sum(t.sin().sum() for t in found), inputs)
    expected = reference_messages(p, q, edges, weights)
    expected_d = torch.autograd.grad(
        sum(t.sin().sum() for t in expected), inputs, materialize_grads=True, allow_unused=True
    )
    for have, want in zip((*found, *found_d), (*expected, *expected_d), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("nodes", [True, False])
def test_the_same_bits_with_any_number_of_threads(small_chunks, set_threads, dtype, nodes):
    """Also with more threads than chunks, and with as many as before once more."""
    p, q, edges, weights = case(R=40, dtype=dtype, nodes=nodes)
    expected = sums_and_gradients(p, q, edges, weights)
    for number in (2, 3, 40, 2):
        set_threads(number)
        for have, want in zip(sums_and_gradients(p, q, edges, weights), expected, strict=True):
            assert torch.equal(have, want)
            assert have.dtype == want.dtype


def test_threads_do_not_undo_each_others_sums(small_chunks, set_threads):
    """In half precision index_add_ writes all rows anew, also those of other threads."""
    p, q, edges, weights = case(R=40, dtype=torch.bfloat16, grad=False)
    expected, _ = summed_messages(p, q, edges, weights)
    set_threads(3)
    for _ in range(300):  # without sums in single precision, about one in seventy is wrong
        assert torch.equal(summed_messages(p, q, edges, weights)[0], expected)


@pytest.mark.parametrize("K", [1, 4, 30])
def test_chunks_are_all_edges_of_some_receivers(small_chunks, K):
    """Also where one receiver has more edges than a chunk should have."""
    p, _, edges, _ = case(R=9, K=K)
    chunks = messages._chunks(edges.senders, edges.mask, p, messages.BACKWARD)
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    assert torch.cat([chunk.at for chunk in chunks]).equal(edges.mask.flatten().nonzero()[:, 0])
    assert torch.cat([chunk.i for chunk in chunks]).equal(edges.mask.nonzero()[:, 0])
    assert torch.cat([chunk.j for chunk in chunks]).equal(edges.senders[edges.mask])
    receivers = [set(chunk.i.tolist()) for chunk in chunks]
    assert sum(map(len, receivers)) == len(set().union(*receivers))


@pytest.mark.parametrize(("R", "chunks"), [(0, 0), (5, 1), (6, 4), (20, 4), (21, 8), (40, 8)])
def test_two_or_four_threads_have_equal_shares(small_chunks, R, chunks):
    p, _, edges, _ = case(R, K=1)
    found = messages._chunks(edges.senders, torch.ones_like(edges.mask), p, messages.BACKWARD)
    assert len(found) == chunks
    sizes = [len(chunk.at) for chunk in found]
    assert not sizes or max(sizes) <= min(5, min(sizes) + 1)


def test_autocast_and_threads(small_chunks, set_threads):
    p, q, edges, weights = case(R=40, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        expected = sums_and_gradients(p, q, edges, weights)
        set_threads(2)
        found = sums_and_gradients(p, q, edges, weights)
    for have, want in zip(found, expected, strict=True):
        assert have.dtype == torch.float32
        assert torch.equal(have, want)


def test_a_caller_in_inference_mode_and_threads(small_chunks, set_threads):
    p, q, edges, weights = case(R=40)
    expected = summed_messages(p, q, edges, weights)
    set_threads(2)
    with torch.inference_mode():
        found = summed_messages(p, q, edges, weights)
        assert all(t.is_inference() for t in found)
    with torch.no_grad():
        found += summed_messages(p, q, edges, weights)
    for have, want in zip(found, (*expected, *expected), strict=True):
        assert torch.equal(have, want)


def test_the_gradient_is_that_of_the_function(small_chunks):
    p, q, edges, weights = case(R=3, K=3)

    def function(p, q, s, x, *weights):
        return summed_messages(p, q, edges._replace(s=s, x=x), Weights(*weights))

    assert torch.autograd.gradcheck(function, (p, q, edges.s, edges.x, *weights))
    assert torch.autograd.gradgradcheck(function, (p, q, edges.s, edges.x, *weights))


def test_derivatives_of_derivatives_when_few_things_are_trained(small_chunks):
    p, q, edges, weights = case(grad=False)
    weights.u.requires_grad_()
    _, pull = summed_messages(p, q, edges, weights)
    (d_u,) = torch.autograd.grad(pull.square().sum(), weights.u, create_graph=True)
    (found,) = torch.autograd.grad(d_u.sum(), weights.u)
    _, pull = reference_messages(p, q, edges, weights)
    (d_u,) = torch.autograd.grad(pull.square().sum(), weights.u, create_graph=True)
    torch.testing.assert_close(found, torch.autograd.grad(d_u.sum(), weights.u)[0])


def test_forward_mode_and_functional_derivatives():
    p, q, edges, weights = case(grad=False)

    def of(function):
        def m_i(p):
            return function(p, q, edges, weights)[0]

        with forward_ad.dual_level():
            dual = forward_ad.unpack_dual(m_i(forward_ad.make_dual(p, p))).tangent
        return (
            torch.func.jvp(m_i, (p,), (p,))[1],
            torch.func.jacrev(m_i)(p),
            torch.func.grad(lambda p: m_i(p).square().sum())(p),
            dual,
        )

    for have, want in zip(of(summed_messages), of(reference_messages), strict=True):
        torch.testing.assert_close(have, want)


def test_edges_that_do_not_exist_are_never_read(small_chunks):
    p, q, edges, weights = case(grad=False)
    expected = summed_messages(p, q, edges, weights)
    nowhere = ~edges.mask
    hostile = edges._replace(
        s=edges.s.masked_fill(nowhere.unsqueeze(-1), torch.nan),
        x=edges.x.masked_fill(nowhere.unsqueeze(-1), torch.inf),
    )
    for have, want in zip(summed_messages(p, q, hostile, weights), expected, strict=True):
        assert torch.equal(have, want)


def test_nothing_is_kept_for_every_edge_and_channel():
    """Memory for the backward pass is that of nodes and of the few numbers of an edge."""
    p, q, edges, weights = case(R=20, K=20, width=32)
    kept = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t)
    with hooks:
        summed_messages(p, q, edges, weights)
    assert 0 < max(t.numel() for t in kept) <= 20 * 20 * 3
    kept.clear()
    with hooks:
        reference_messages(p, q, edges, weights)
    assert max(t.numel() for t in kept) == 20 * 20 * 32


def test_sums_stay_in_the_precision_of_positions():
    p, q, edges, weights = case(grad=False, dtype=torch.float32)
    low = Weights(*(w.half() for w in weights))
    half = edges._replace(s=edges.s.half())
    m_i, pull = summed_messages(p.half(), q.half(), half, low)
    assert m_i.dtype == pull.dtype == torch.float32
    for have, want in zip((m_i, pull), reference_messages(p, q, edges, weights), strict=True):
        torch.testing.assert_close(have, want, rtol=0.02, atol=0.05)


def test_what_torch_is_told_of_the_operation_is_true(small_chunks, set_threads):
    """Shapes without values, no hidden mutation, gradients also when traced."""
    set_threads(2)
    p, q, edges, weights = case(R=10, K=3)
    torch.library.opcheck(messages._sums, (p, q, list(edges), list(weights)))


@pytest.mark.parametrize("preset", ["set", "egnn"])
def test_a_compiled_training_step_is_the_eager_one(preset):
    torch.compiler.reset()
    graph = particles(B=2, L=3, N=4)
    size = SMALL if preset == "set" else {"hidden": 16}
    model = liven(build_model(preset, like=graph, **size)).double().eval()
    gradients = []
    for run in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        model.zero_grad()
        forecast = run(graph)
        (forecast.x.square().mean() + forecast.v.square().mean()).backward()
        reached = {k: p.grad for k, p in model.named_parameters() if p.grad is not None}
        gradients.append({k: gradient.clone() for k, gradient in reached.items()})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient)


@pytest.mark.slow
@pytest.mark.parametrize("lists", [False, True])
def test_batches_of_other_sizes_are_not_compiled_anew(lists):
    torch.compiler.reset()
    model = liven(build_model("set", like=particles(), **SMALL)).double()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")

    def step(B):
        graph = particles(B=B, N=5, neighbours=random_neighbours(5, 3, B) if lists else None)
        compiled(graph).x.square().mean().backward()

    step(2)
    step(3)  # here the compiler learns that B varies
    with torch.compiler.set_stance("fail_on_recompile"):
        for B in (4, 5, 9):
            step(B)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
def test_the_same_on_a_gpu(dtype, compiled):
    torch.compiler.reset()
    graph = particles(B=2, L=3, N=4, dtype=torch.float32)
    model = liven(build_model("set", like=graph, **SMALL)).float().eval()
    expected = model(graph)
    moved = model.cuda()
    run = torch.compile(moved) if compiled else moved
    with torch.autocast("cuda", dtype=dtype or torch.float16, enabled=dtype is not None):
        found = run(graph.to("cuda"))
        (found.x.square().mean() + found.v.square().mean()).backward()
    tolerance = 1e-4 if dtype is None else 5e-2
    torch.testing.assert_close(found.x.float().cpu(), expected.x, rtol=tolerance, atol=tolerance)
    assert all(p.grad.isfinite().all() for p in moved.parameters() if p.grad is not None)
