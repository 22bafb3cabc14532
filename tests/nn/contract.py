"""The contract of every registered model, as checks that take the name of a preset.

`test_contract.py` runs each check on each preset: a new model is one file and one line in the
registry, and needs no line here.
"""

import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from spacetime_en import Forecast, Forecaster, InputError, SpacetimeGraph, build_model, collate
from spacetime_en.nn.forecaster import ClosedForm
from spacetime_en.nn.models.variational import Variational
from spacetime_en.nn.presets import arguments_of, find_preset
from spacetime_en.nn.rollout import with_times
from spacetime_en.testing import TOLERANCE, equivariance_errors
from tests.helpers import assert_lively, masked, padded, particles, random_neighbours

# For the arguments that a model has of these names: small, with all parts that it has at full size.
SIZES = {"hidden": 16, "layers": 2, "blocks": 2, "samples": 4, "steps": 8, "centres": 9}
# Presets whose steps are much work: equal ones (set-flow's adapt), and of fourth order, so many
# times fewer.
FEW_STEPS = {"segno": 1, "hnn-pairs": 1, "hnn": 8, "lnn": 8}

PATH = [1.0, 2.0, 3.0]  # target times
# With the paper's numbers of parameters: their last layers update features that nobody reads.
PAPERS = ("set", "set-nonequivariant", "set-adjacency", "set-no-temporal", "egnn")
IN_SPACE_ALONE = ("tfn", "se3-transformer")  # spherical harmonics are of three dimensions


def with_neighbours(*leading: int, N: int = 4, L: int = 3, **sizes: Any) -> SpacetimeGraph:
    return particles(neighbours=random_neighbours(N, 2, *leading), N=N, L=L, **sizes)


KINDS: dict[str, Callable[..., SpacetimeGraph]] = {
    "complete": particles,
    "holes": lambda **sizes: masked(**{"L": 4} | sizes),
    "padded": lambda **sizes: padded(**{"L": 3} | sizes),
    "neighbours": with_neighbours,
    "neighbours per frame": lambda L=3, **sizes: with_neighbours(3, L, L=L, **sizes),
    "box": lambda n=3, **sizes: particles(n=n, box=[4.0, 5.0, 6.0, 7.0, 8.0][:n], **sizes),
    "up": lambda n=3, **sizes: particles(n=n, up=[1.0, 0.5, 0.0, 0.0, 0.0][:n], **sizes),
}


def build(preset: str, graph: SpacetimeGraph, sizes: Mapping[str, Any] = SIZES) -> Forecaster:
    """A small model for graphs like `graph`, with generic weights, in eval mode.

    What is measured or solved is so on random windows; then all weights get noise, because many
    models are built with zeros that would hide what their parts do.
    """
    torch.manual_seed(0)
    accepted = arguments_of(find_preset(preset).model)
    settings = {name: size for name, size in sizes.items() if name in accepted}
    if preset in FEW_STEPS:
        settings |= {"steps": max(1, settings["steps"] // FEW_STEPS[preset]), "step_fraction": None}
    model = build_model(preset, like=graph, **settings).double()
    _, L, N, n = graph.x.shape
    up = {} if graph.up is None else {"up": graph.up[0]}
    windows = (particles(B=9, L=L, N=N, n=n, seed=seed, **up) for seed in (7, 8))
    examples = [example(with_times(window, graph.horizon[0])) for window in windows]
    if isinstance(model, ClosedForm):
        model.solve(*([pair] for pair in examples))
    else:
        model.calibrate(*examples)
    with torch.no_grad():
        for weight in model.parameters():
            inputs = weight.shape[-1] if weight.ndim > 1 else 1
            weight.add_(0.3 * inputs**-0.5 * torch.randn_like(weight))
    return model.to(graph.x.dtype).eval()


def example(graph: SpacetimeGraph) -> tuple[SpacetimeGraph, Forecast]:
    """A window and random targets."""
    g = torch.Generator().manual_seed(9)
    shape = (len(graph), graph.horizon.shape[1], *graph.x.shape[2:])
    x, v = torch.randn(2, *shape, generator=g, dtype=graph.x.dtype)
    return graph, Forecast(x, v)


def is_refused(model: Forecaster, graph: SpacetimeGraph) -> bool:
    """Whether a model refuses a graph, in a sentence that begins with what is wrong."""
    try:
        forecast = model(graph)
    except InputError as error:
        if re.match(r"\w+: \S", str(error)):
            return True
        raise AssertionError(f"the sentence does not begin with what is wrong: {error}") from None
    shape = (len(graph), graph.horizon.shape[1], *graph.x.shape[2:])
    assert forecast.x.shape == forecast.v.shape == shape
    assert torch.equal(forecast.times, graph.horizon)
    assert forecast.x.isfinite().all()
    assert forecast.v.isfinite().all()
    return False


# --- the checks -----------------------------------------------------------------------------------


def check_symmetries(preset: str) -> None:
    """The symmetries that a model claims hold, on all graphs it takes; those it does not, fail."""
    graph = particles()
    model = build(preset, graph)
    assert_lively(model, graph)
    errors = equivariance_errors(model, graph, max_translation=10)
    for name, claimed, error in zip(errors._fields, model.symmetries, errors, strict=True):
        if not claimed:
            assert error > 1e-7, (
                f"{preset} does not claim {name} equivariance, but has it: relative error {error}."
            )
    cases = [(kind, 3) for kind in KINDS] + [("complete", n) for n in (1, 2, 5)]
    for kind, n in cases:
        graph = KINDS[kind](n=n)
        model = build(preset, graph)
        if not is_refused(model, graph):
            assert_claims_hold(preset, model, graph, f"{kind}, n = {n}")
    graph = particles()
    assert_claims_hold(preset, build(preset, graph).train(), graph, "in training")
    graph = graph.to(torch.float32)
    assert_claims_hold(preset, build(preset, graph), graph, "float32")


def assert_claims_hold(preset: str, model: Forecaster, graph: SpacetimeGraph, where: str) -> None:
    errors = equivariance_errors(model, graph)
    for name, claimed, error in zip(errors._fields, model.symmetries, errors, strict=True):
        assert not claimed or error <= TOLERANCE[graph.x.dtype], (
            f"{preset} claims {name} equivariance, but its relative error is {error} ({where})."
        )


def check_images(preset: str) -> None:
    """In a periodic box it does not matter in which image a node is stored."""
    graph = KINDS["box"]()
    model = build(preset, graph)
    if is_refused(model, graph) or not model.symmetries.translation:
        return
    moved = graph.x.clone()
    moved[:, :, 1] += graph.box[:, None, 0]  # by a vector of the cell
    here, there = model(graph), model(graph.replace(x=moved))
    shift = torch.zeros_like(here.x)
    shift[:, :, 1] = graph.box[:, :1]
    torch.testing.assert_close(there.x - shift, here.x, rtol=0, atol=1e-9)
    torch.testing.assert_close(there.v, here.v, rtol=0, atol=1e-9)


def check_padding(preset: str) -> None:
    """Neither padding, NaN in its place, nor other graphs change forecasts and gradients."""
    for kind, times in [*((kind, [1.0]) for kind in KINDS), ("holes", PATH), ("padded", PATH)]:

        def make(kind: str = kind, times: list[float] = times, **sizes: Any) -> SpacetimeGraph:
            return with_times(KINDS[kind](**sizes), times)

        graph, target = example(make())
        B, L, N, _ = graph.x.shape
        model = build(preset, graph)
        if is_refused(model, graph):
            continue
        alone, gradients = forecast_and_gradients(model, graph, target)
        sizes = [{"N": N + 2, "L": L + 2}]
        if kind in ("complete", "holes") and len(times) == 1:
            sizes += [{"N": N + 1}, {"L": L + 1}]  # each alone
        for larger in (make(**size) for size in sizes):
            batch = collate([graph, larger])
            missing = ~batch.observed.unsqueeze(-1)
            x, v = (t.masked_fill(missing, torch.nan) for t in (batch.x, batch.v))
            batch = batch.replace(x=x, v=v)
            if is_refused(model, batch):
                continue
            forecast, padded = forecast_and_gradients(model, batch, target)
            of_x, others = padded[0][:B, :L, :N], padded[0][B:]
            assert not others.any(), f"{preset}: graphs of a batch know of each other ({kind})"
            pairs = zip([forecast.x, forecast.v, of_x, *padded[1:]],
                        [alone.x, alone.v, *gradients], strict=True)  # fmt: skip
            for found, expected in pairs:
                size = float(expected.abs().max())
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-9 * max(1.0, size))


def forecast_and_gradients(
    model: Forecaster, graph: SpacetimeGraph, target: Forecast
) -> tuple[Forecast, list[torch.Tensor]]:
    """The forecast for the nodes of `target`, and the gradients of its error by x and weights."""
    B, _, N, _ = target.x.shape
    x = graph.x.clone().requires_grad_()
    forecast = model(graph._replace(x=x))
    mask = None if forecast.mask is None else forecast.mask[:B, :, :N]
    forecast = Forecast(forecast.x[:B, :, :N], forecast.v[:B, :, :N], mask=mask)
    loss = model.distance(forecast, target, 1.0).sum()
    weights = [p for p in model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(loss, [x, *weights], allow_unused=True)
    forecast = Forecast(forecast.x.detach(), forecast.v.detach())
    return forecast, [x.new_zeros(()) if g is None else g for g in gradients]


def check_paths(preset: str) -> None:
    """Several times are answered at once or step by step as by hand, and can be learned from."""
    for kind in ("complete", "holes"):
        graph, target = example(with_times(KINDS[kind](), PATH))
        model = build(preset, graph, {**SIZES, "step_fraction": None, "steps": 150})
        if kind == "holes" and is_refused(model, graph):
            continue
        assert not is_refused(model, graph)
        with torch.no_grad():
            path, tolerance = model(graph), 1e-9
            if model.reads_horizon:
                expected, tolerance = model(with_times(graph, PATH[0])), 1e-3  # (other steps)
            else:
                expected = path if model.forecasts_paths else step_by_step(model, graph)
        pairs = zip((path.x, path.v), (expected.x, expected.v), strict=True)
        for found, wanted in pairs:
            size = max(1.0, float(wanted.abs().max()))
            found = found[:, : wanted.shape[1]]
            torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance * size)
        holes = torch.rand(target.x.shape[:3], generator=torch.Generator().manual_seed(3)) < 0.2
        unknown = [t.masked_fill(holes.unsqueeze(-1), torch.nan) for t in (target.x, target.v)]
        target = Forecast(*unknown, mask=~holes)
        if any(p.requires_grad for p in model.parameters()):
            assert_finite_gradients(model.train(), graph, target)


def step_by_step(model: Forecaster, graph: SpacetimeGraph) -> Forecast:
    """Forecasts at the times 1, 2, ... of windows whose frames are 1 apart: a plain loop.

    Each graph is on its own, without frames before its first and after its last observed one.
    """
    paths = []
    for window in (graph[b] for b in range(len(graph))):
        seen = torch.ones(window.x.shape[:3], dtype=torch.bool)
        seen = seen if window.observed is None else window.observed
        frames = seen[0].any(1).nonzero()[:, 0]
        x, v, times, seen = (
            t[:, frames[0] : frames[-1] + 1] for t in (window.x, window.v, window.times, seen)
        )
        states = []
        for _ in range(graph.horizon.shape[1]):
            masks = {} if graph.observed is None else {"observed": seen}
            now = SpacetimeGraph(x, v, edge_attr=window.edge_attr, times=times, **masks)
            one = model(now)
            states.append((one.x, one.v))
            there = seen.any(1, keepdim=True)
            x, v = torch.cat([x[:, 1:], one.x], 1), torch.cat([v[:, 1:], one.v], 1)
            times = torch.cat([times[:, 1:], times[:, -1:] + 1], 1)
            seen = torch.cat([seen[:, 1:], there], 1)
        paths.append([torch.cat(t, dim=1) for t in zip(*states, strict=True)])
    return Forecast(*(torch.cat(t) for t in zip(*paths, strict=True)))


def check_gradients(preset: str) -> None:
    """The loss has finite gradients, also for nodes at rest and at one point, by every weight."""
    graph, target = example(particles(B=8, horizon=2.0))
    still = graph.replace(v=torch.zeros_like(graph.v), x=graph.x[:, :1, :1].expand_as(graph.x))
    model = build(preset, graph).train()
    if not any(p.requires_grad for p in model.parameters()):
        return
    unread = {name for name, weight in model.named_parameters() if weight.requires_grad}
    for window in (graph, still):
        for fraction in (0.0, 0.5, 1.0):
            model.set_progress(fraction)
            assert_finite_gradients(model, window, target)
            unread -= {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert not unread or preset in PAPERS, f"{preset} does not read {unread}"


def assert_finite_gradients(model: Forecaster, graph: SpacetimeGraph, target: Forecast) -> None:
    model.zero_grad()
    losses = model.losses(graph, target, 1.0)
    assert losses.shape == (len(graph),)
    losses.sum().backward()
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            assert weight.grad.isfinite().all(), f"the gradient of {name} is not finite"


def check_saving(preset: str) -> None:
    """A model that was saved and loaded, as a folder or a file, forecasts the same bits."""
    graph = particles(dtype=torch.float32)
    model = build(preset, graph)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("folder", "file.safetensors"):
            loaded = Forecaster.from_pretrained(model.save_pretrained(Path(folder, name)))
            assert type(loaded) is type(model)
            assert loaded.config == model.config
            assert not loaded.training
            found, wanted = loaded(graph), model(graph)
            same = torch.equal(found.x, wanted.x) and torch.equal(found.v, wanted.v)
            assert same, f"loaded from a {name}, {preset} forecasts other bits"


def check_export(preset: str) -> None:
    """What torch.export makes of a model forecasts what it does, or a sentence says why not."""
    times = PATH if find_preset(preset).model.forecasts_paths else PATH[:1]
    graph, other = (with_times(particles(seed=seed, dtype=torch.float32), times) for seed in (0, 1))
    # (Steps that depend on the data cannot be exported.)
    model = build(preset, graph, {**SIZES, "layers": 1, "blocks": 1, "step_fraction": None})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer, about its own inside
        if isinstance(model, Variational):
            with pytest.raises(InputError, match=r"torch\.export cannot follow"):
                torch.export.export(model, (graph,), strict=False)
            return
        found = torch.export.export(model, (graph,), strict=False).module()(other)
        wanted = model(other)
    torch.testing.assert_close(found.x, wanted.x, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.v, wanted.v, rtol=1e-4, atol=1e-4)


def check_refusals(preset: str) -> None:
    """Graphs that do not fit are refused in a sentence; those that do are forecast."""
    graph = particles()
    model = build(preset, graph)
    assert not is_refused(model, graph)
    if next(model.parameters(), None) is not None:
        assert is_refused(model, graph.to(torch.float32))
    for other in other_graphs(graph):
        is_refused(model, other)
    with pytest.raises(InputError, match="expected a SpacetimeGraph"):
        model((graph.x, graph.v))


def other_graphs(graph: SpacetimeGraph) -> Iterator[SpacetimeGraph]:
    """Graphs of another kind or size than the one that a model was built like."""
    yield from (kind() for kind in KINDS.values())
    yield from (particles(**size) for size in ({"n": 2}, {"N": 5}, {"L": 4}, {"L": 1}, {"N": 1}))
    yield graph.replace(features=torch.ones(3, 4, 2))
    yield graph.replace(edge_attr=torch.ones(3, 4, 4, 2))
    yield graph.replace(edge_attr=None)
    yield graph.replace(horizon=0.0)


def check_building(preset: str) -> None:
    """A model is built like any graph, in any number of dimensions, or says that it needs three."""
    for n in (1, 2, 3, 5):
        graph = particles(n=n, L=6, horizon=3.0)
        graph = graph.replace(features=torch.rand(3, 4, 5), edge_attr=torch.rand(3, 4, 4, 3))
        model = build_model(preset, like=graph).double()
        assert is_refused(model, graph) == (preset in IN_SPACE_ALONE and n != 3)


CHECKS = [check for name, check in list(globals().items()) if name.startswith("check_")]
