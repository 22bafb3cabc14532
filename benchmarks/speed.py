"""The model against a straightforward implementation: training steps, memory, scaling.

    spacetime bench [SECTION ...] [--json]

Everything runs in this one process, in turn, except the memory measurements, which need a process
each. Ratios above 1 mean that ours is faster, or smaller.
"""

import contextlib
import copy
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import busy, exponent, peak_memory, side_by_side
from benchmarks.yardstick import materialised_position_attention, yardstick
from spacetime_en import SpacetimeGraph, build_model
from spacetime_en.data import Trajectories, Windows
from spacetime_en.neighbours import radius_neighbours
from spacetime_en.nn.forecaster import ClosedForm, Forecaster
from spacetime_en.nn.layers.attention import Window
from spacetime_en.nn.layers.egcl import EGCL
from spacetime_en.nn.layers.etal import position_attention
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.runs.prediction import fast_batch, predict

Row = dict[str, Any]
Step = Callable[[], Any]
WIDTH, EGCLS = 128, 6  # of the paper's SET: three blocks of two


# --- what is measured -----------------------------------------------------------------------------


def particles(B: int, L: int, N: int, seed: int = 0) -> SpacetimeGraph:
    """Charged particles on straight paths, at the density of the paper's data."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(B, 1, N, 3, generator=draw) * (N / 5) ** (1 / 3)
    v = torch.randn(B, 1, N, 3, generator=draw).expand(B, L, N, 3)
    t = 0.01 * torch.arange(L)[None, :, None, None]
    charge = 2.0 * torch.randint(0, 2, (B, N), generator=draw) - 1
    return SpacetimeGraph.from_particles(x + t * v, v, charge)


def gas(N: int, neighbours: float = 20.0, L: int = 2, seed: int = 0) -> SpacetimeGraph:
    """One periodic gas at density 1, its nodes connected within a radius."""
    draw = torch.Generator().manual_seed(seed)
    side = N ** (1 / 3)
    radius = (neighbours * 3 / (4 * torch.pi)) ** (1 / 3)
    v = torch.randn(1, 1, N, 3, generator=draw).expand(1, L, N, 3)
    x = side * torch.rand(1, 1, N, 3, generator=draw) + 0.01 * torch.arange(L)[:, None, None] * v
    lists = radius_neighbours(x[:, -1], radius, box=torch.full((3,), side))
    charge = 2.0 * torch.randint(0, 2, (1, N), generator=draw) - 1
    return SpacetimeGraph.from_particles(x, v, charge, neighbours=lists, box=[side] * 3)


def both(graph: SpacetimeGraph) -> dict[str, Forecaster]:
    """The paper's SET in the straightforward and in our implementation, with the same weights."""
    model = build_model("set", like=graph)
    return {"yardstick": yardstick(model), "ours": model}


def training_step(model: Forecaster, graph: SpacetimeGraph) -> Step:
    """Forward, backward and the optimiser."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        forecast = model(graph)
        loss = (forecast.x - graph.x[:, -1:]).square().mean() + forecast.v.square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def forecast(model: Callable[..., Any], graph: SpacetimeGraph) -> Step:
    """Forward alone."""

    def run() -> None:
        with torch.inference_mode():
            model(graph)

    return run


def paper_step(plain: bool, N: int, B: int, L: int) -> Step:
    """A training step of the paper's SET, after a small one that loads libraries."""
    model = build_model("set", nodes=N)
    model = yardstick(model) if plain else model
    training_step(model, particles(1, L, N))()
    return training_step(model, particles(B, L, N))


def attention_step(plain: bool, L: int, N: int = 5) -> Step:
    """Eqs. 7-8 and their gradient for one graph of N nodes."""

    def run(L: int = L) -> None:
        x = torch.randn(1, N, L, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
        scale = 3**-0.5
        if plain:
            out = materialised_position_attention(x, scale, 0.5)
        else:
            out, _ = position_attention(x, Window(), scale, 0.5, with_weights=False)
        out.square().sum().backward()

    run(16)
    return run


# --- upper bounds -------------------------------------------------------------------------------


def edges_of(graph: SpacetimeGraph) -> float:
    """The number of messages summed by a layer, in all frames."""
    return float(graph.edge_mask.expand(*graph.x.shape[:3], -1).sum())


def matrix_products(graph: SpacetimeGraph, again: bool) -> float:
    """FLOP of the matrix products of a training step of the paper's SET.

    A product of R rows with a (width, width) weight costs 2 R width^2, and twice that in the
    backward pass. An edge has two (recomputed in the backward pass, if `again`); a node has six,
    except in the first layer of a block, where h is computed from one number, only two.
    """
    nodes = float(graph.x.shape[:3].numel())
    rows = EGCLS * edges_of(graph) * (8 if again else 6) + EGCLS / 2 * nodes * 3 * (2 + 6)
    return 2 * WIDTH**2 * rows


def peak_rates(rows: int = 4096) -> dict[str, float]:
    """In-cache peak rates of this machine: FLOP/s of one product of a chunk, and SiLUs/s."""
    a, w = torch.randn(rows, WIDTH), torch.randn(WIDTH, WIDTH)
    out = torch.empty(rows, WIDTH)
    times = side_by_side(
        {
            "product": lambda: torch.mm(a, w, out=out),
            "silu": lambda: torch.ops.aten.silu.out(a, out=out),
        },
        rounds=200,
    )
    return {"flops": 2 * rows * WIDTH**2 / times["product"], "silus": a.numel() / times["silu"]}


# --- the sections -------------------------------------------------------------------------------


def training(
    cases: Sequence[tuple[int, int, int]] = ((5, 100, 9), (30, 10, 5)), L: int = 10
) -> Iterator[Row]:
    """Training steps of the paper's SET (N, B, rounds), eager and compiled."""
    peak = peak_rates()
    for N, B, rounds in cases:
        graph = particles(B, L, N)
        models = both(graph)
        for name in ("ours", "yardstick"):
            models[f"{name}, compiled"] = torch.compile(copy.deepcopy(models[name]))
        steps = {name: training_step(model, graph) for name, model in models.items()}
        times = side_by_side(steps, rounds)
        needed, done = (matrix_products(graph, again) for again in (False, True))
        silus = EGCLS * edges_of(graph) * WIDTH * 9  # three, three recomputed, three derivatives
        for name, taken in times.items():
            row = {
                "what": f"training step, N = {N}, B = {B}: {name}",
                "ms": 1e3 * taken,
                "ratio": times["yardstick"] / taken,
            }
            if name.startswith("ours"):
                row["GFLOP_needed"], row["GFLOP_done"] = needed / 1e9, done / 1e9
                row["share_of_peak"] = needed / taken / peak["flops"]
                row["ms_at_best"] = 1e3 * (done / peak["flops"] + silus / peak["silus"])
            yield row


def loaded(
    cases: Sequence[tuple[int, int, int]] = ((5, 100, 7), (30, 10, 5)), L: int = 10, others: int = 2
) -> Iterator[Row]:
    """The same training steps (N, B, rounds) while two other processes keep the cores busy."""
    for N, B, rounds in cases:
        graph = particles(B, L, N)
        steps = {name: training_step(model, graph) for name, model in both(graph).items()}
        with busy(others):
            times = side_by_side(steps, rounds)
        for name, taken in times.items():
            yield {
                "what": f"training step, busy machine, N = {N}, B = {B}: {name}",
                "ms": 1e3 * taken,
                "ratio": times["yardstick"] / taken,
            }


def memory(L: int = 10, small: tuple[int, int] = (30, 10), large: int = 100) -> Iterator[Row]:
    """Peak memory of a training step beyond weights and data."""
    N, B = small
    plain = peak_memory(paper_step, True, N, B, L)
    ours = peak_memory(paper_step, False, N, B, L)
    yield {"what": f"memory, N = {N}, B = {B}: yardstick", "MB": plain / 1e6, "ratio": 1.0}
    yield {"what": f"memory, N = {N}, B = {B}: ours", "MB": ours / 1e6, "ratio": plain / ours}
    ours = peak_memory(paper_step, False, N, large, L)
    yield {"what": f"memory, N = {N}, B = {large}: ours", "MB": ours / 1e6}


def attention(
    compared: int = 1024, lengths: Sequence[int] = (1024, 2048, 4096), rounds: int = 7
) -> Iterator[Row]:
    """Position attention over long windows, forward and backward, N = 5, B = 1."""
    times = side_by_side(
        {
            "materialised": attention_step(True, compared),
            "ours": attention_step(False, compared),
        },
        rounds,
    )
    for name, taken in times.items():
        ratio = times["materialised"] / taken
        yield {"what": f"attention, L = {compared}: {name}", "ms": 1e3 * taken, "ratio": ratio}
    used = [peak_memory(attention_step, False, L) for L in lengths]
    for L, bytes_ in zip(lengths, used, strict=True):
        yield {"what": f"attention, L = {L}: ours", "MB": bytes_ / 1e6}
    plain = peak_memory(attention_step, True, compared)
    yield {"what": f"attention, L = {compared}: materialised", "MB": plain / 1e6}
    yield {
        "what": f"attention, memory from L = {lengths[0]} to {lengths[-1]}",
        "exponent": exponent(lengths, [max(b, 1) for b in used]),
    }


def sparse(nodes: Sequence[int] = (1000, 2000, 5000, 10_000), rounds: int = 3) -> Iterator[Row]:
    """Neighbour lists: a periodic gas with 20 neighbours per node, L = 2, the paper's SET."""
    graphs = {N: gas(N) for N in nodes}
    edges = {N: int(g.edge_mask.sum()) for N, g in graphs.items()}
    model = build_model("set", like=graphs[nodes[0]])
    parts: dict[str, dict[int, float]] = {
        "lists": side_by_side({N: lambda N=N: gas(N) for N in nodes}, rounds),
        "forward": side_by_side({N: forecast(model, graphs[N]) for N in nodes}, rounds),
        "training step": side_by_side({N: training_step(model, graphs[N]) for N in nodes}, rounds),
    }
    for part, times in parts.items():
        for N, taken in times.items():
            what = f"sparse, N = {N:,}, {edges[N]:,} edges: {part}"
            yield {"what": what, "ms": 1e3 * taken, "ns_an_edge": 1e9 * taken / edges[N]}
        power = exponent([edges[N] for N in nodes], [times[N] for N in nodes])
        yield {"what": f"sparse, {part}: growth with edges", "exponent": power}


def inference(
    batches: Sequence[tuple[int, int]] = ((1, 100), (10, 25), (100, 7), (1000, 3)),
    N: int = 5,
    L: int = 10,
) -> Iterator[Row]:
    """Forecasts of the paper's SET: latency (B = 1) and throughput, eager, compiled, exported."""
    model = build_model("set", nodes=N).eval()
    with tempfile.TemporaryDirectory() as folder:
        exported = _exported(model, particles(2, L, N), Path(folder))
        best: dict[str, float] = {}
        for B, rounds in batches:
            graph = particles(B, L, N)
            torch.compiler.reset()
            runs = {
                "yardstick": forecast(yardstick(model), graph),
                "yardstick, compiled": forecast(torch.compile(yardstick(model)), graph),
                "ours": forecast(model, graph),
                "ours, compiled": forecast(torch.compile(model), graph),
            } | {f"ours, {name}": forecast(run, graph) for name, run in exported.items()}
            times = side_by_side(runs, rounds)
            for name, taken in times.items():
                best[name] = max(best.get(name, 0.0), B / taken)
                yield {
                    "what": f"inference, N = {N}, B = {B}: {name}",
                    "ms": 1e3 * taken,
                    "ratio": times["yardstick"] / taken,
                    "forecasts_per_s": B / taken,
                }
    for name, rate in best.items():
        yield {
            "what": f"inference, N = {N}, best B: {name}",
            "forecasts_per_s": rate,
            "ratio": rate / best["yardstick"],
        }


def prediction(
    presets: Sequence[str] = ("straight-line", "ridge-shared", "egnn", "set-flow"),
    frames: int = 10_000,
    batches: Sequence[int] = (32, 100, 1000, 5000),
    rounds: int = 3,
) -> Iterator[Row]:
    """`predict` over one long recording of five charges with the automatic batch size.

    In processor time, from the data to the file. Ratios are of given batch sizes to the automatic
    one.
    """
    graph = particles(1, frames, 5)
    charge = np.sign(np.arange(5) - 1.5)
    x, v, times = graph.x.double().numpy(), graph.v.double().numpy(), 0.01 * np.arange(frames)
    recording = Trajectories.from_arrays(x, v, times=times, attributes={"charge": charge})
    for preset in presets:
        windows = Windows(
            recording, length=1 if preset in ("egnn", "set-flow") else 4, stride=1, target_steps=1
        )
        model = build_model(preset, like=windows[:1][0]).eval()
        if isinstance(model, ClosedForm):
            model.solve([windows[:500]], [windows[500:600]])
        cut = {"length": windows.length, "frame_time": 0.01, "horizon_times": (0.01,)}
        taken: dict[int | None, list[float]] = {size: [] for size in (None, *batches)}
        for turn in range(rounds + 1):
            for size, times_of in taken.items():
                with tempfile.TemporaryDirectory() as folder:
                    start = time.process_time()
                    predict(model, recording, Path(folder) / "out.npz", **cut, batch_size=size)
                    if turn > 0:  # discard the first: memory and files are in an unknown state
                        times_of.append(time.process_time() - start)
        chosen = statistics.median(taken[None])
        for size, times_of in taken.items():
            B = f"chosen, {fast_batch(windows.length, 5)}" if size is None else str(size)
            middle = statistics.median(times_of)
            what = f"prediction, {preset}, {frames:,} frames, B = {B}"
            yield {"what": what, "ms": 1e3 * middle, "ratio": middle / chosen}


def _exported(
    model: Forecaster, example: SpacetimeGraph, folder: Path
) -> dict[str, Callable[[SpacetimeGraph], Any]]:
    """The model as exported programs, called with a graph."""
    from spacetime_en.runs.export import export

    program = torch.export.load(export(model, example, folder / "model.pt2", "torch-export"))
    module = program.module()
    runs: dict[str, Callable[[SpacetimeGraph], Any]] = {
        "torch.export": lambda graph: module(**graph.fields())
    }
    with contextlib.suppress(ImportError):
        import onnxruntime

        path = export(model, example, folder / "model.onnx", "onnx")
        options = onnxruntime.SessionOptions()  # its threads must not spin at our cost
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = onnxruntime.InferenceSession(path, options)
        wanted = [entry.name for entry in session.get_inputs()]

        def run(graph: SpacetimeGraph) -> Any:
            fields = graph.fields()
            return session.run(None, {name: fields[name].contiguous().numpy() for name in wanted})

        runs["ONNX Runtime"] = run
    return runs


def layer(
    cases: Sequence[tuple[int, int, int]] = ((5, 1000, 15), (30, 100, 7)), width: int = WIDTH
) -> Iterator[Row]:
    """One layer, forward and backward, against that of egnn-pytorch at equal width (N, B, rounds).

    Inside, its MLPs are wider than ours: 4 width + 4, 4 width and 2 width instead of width. Ratios
    are to its layer with MLPs as wide as ours. (It has no velocities, and computes a node's edge
    with itself.)
    """
    try:
        from egnn_pytorch import EGNN
    except ImportError:
        yield {"what": "layer: not compared, egnn-pytorch is not installed"}
        return
    alike = ", our inner widths"
    for N, B, rounds in cases:
        graph = particles(B, 1, N)
        neighbourhood = Neighbourhood.of(graph)
        ours, theirs = EGCL(width, 1), EGNN(dim=width, edge_dim=1, m_dim=width)
        narrow = copy.deepcopy(theirs)
        narrow.edge_mlp, narrow.coors_mlp, narrow.node_mlp = (
            copy.deepcopy(phi) for phi in (ours.phi_e, ours.phi_x, ours.phi_h)
        )
        assert graph.edge_attr is not None
        h, a = torch.randn(B, 1, N, width, requires_grad=True), graph.edge_attr
        x = graph.x.clone().requires_grad_()
        times = side_by_side(
            {
                f"egnn-pytorch{inside}": lambda layer=layer, h=h, x=x, a=a: _backward(
                    layer(h[:, 0], x[:, 0], a[:, 0])
                )
                for inside, layer in (("", theirs), (alike, narrow))
            }
            | {
                "ours": lambda ours=ours, h=h, x=x, a=a, g=graph, e=neighbourhood: _backward(
                    ours(h, x, g.v, a, e)
                ),
            },
            rounds,
        )
        for name, taken in times.items():
            ratio = times[f"egnn-pytorch{alike}"] / taken
            yield {"what": f"layer, N = {N}, B = {B}: {name}", "ms": 1e3 * taken, "ratio": ratio}


def general(
    cases: Sequence[tuple[int, int, int]] = ((5, 100, 15), (30, 10, 9)),
    times: int = 12,
    nodes: Sequence[int] = (1000, 2000, 5000, 10_000),
    L: int = 10,
    rounds: int = 3,
) -> Iterator[Row]:
    """Training steps of SET-2 against EGNN (N, B, rounds), for a path, and on neighbour lists."""
    for N, B, turns in cases:
        graph = particles(B, L, N)
        path = graph.replace(horizon=torch.arange(1.0, times + 1).expand(B, -1))
        steps = {
            "EGNN": training_step(build_model("egnn", like=graph), graph),
            "SET-2": training_step(build_model("set-2", like=graph), graph),
            f"SET-2, {times} times": training_step(build_model("set-2", like=path), path),
        }
        taken = side_by_side(steps, turns)
        for name, t in taken.items():
            what = f"general, training step, N = {N}, B = {B}: {name}"
            yield {"what": what, "ms": 1e3 * t, "ratio": taken["EGNN"] / t}
    graphs = {N: gas(N) for N in nodes}
    model = build_model("set-2", like=graphs[nodes[0]])
    edges = {N: int(g.edge_mask.sum()) for N, g in graphs.items()}
    taken = side_by_side({N: training_step(model, graphs[N]) for N in nodes}, rounds)
    for N, t in taken.items():
        what = f"general, sparse, N = {N:,}, {edges[N]:,} edges: training step"
        yield {"what": what, "ms": 1e3 * t, "ns_an_edge": 1e9 * t / edges[N]}
    power = exponent([edges[N] for N in nodes], [taken[N] for N in nodes])
    yield {"what": "general, sparse: growth with edges", "exponent": power}


def _backward(outputs: tuple[Tensor, ...]) -> None:
    torch.stack([out.square().mean() for out in outputs]).sum().backward()


SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    "training": training,
    "loaded": loaded,
    "memory": memory,
    "attention": attention,
    "sparse": sparse,
    "inference": inference,
    "prediction": prediction,
    "layer": layer,
    "general": general,
}


def report(sections: Sequence[str], as_json: bool) -> None:
    """Run sections and print their rows as they finish, or one object at the end."""
    rows = []
    for name in sections:
        for row in SECTIONS[name]():
            rows.append(row)
            what, *numbers = (
                value if key == "what" else f"{value:,.{0 if value >= 100 else 2}f} {key}"
                for key, value in row.items()
            )
            line = f"{what} {', '.join(numbers[:2]).rjust(79 - len(what))}"
            more = f"\n    {', '.join(numbers[2:])}" if numbers[2:] else ""
            print(line + more, file=sys.stderr if as_json else sys.stdout, flush=True)
    if as_json:
        print(json.dumps({"machine": machine(), "rows": rows}, indent=2))


def machine() -> dict[str, Any]:
    """The machine on which the numbers were measured."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
    }
