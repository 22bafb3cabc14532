import inspect
import json
import logging
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import spacetime_en
from spacetime_en import (
    PRESETS,
    SET,
    Forecast,
    InputError,
    LastFrame,
    LeastSquaresLine,
    SpacetimeGraph,
    build_model,
)
from spacetime_en.runs.export import export
from tests.helpers import assert_lively, liven, masked, particles, random_neighbours

# Tracers take their time over every operation.
TINY = {"hidden": 8, "layers": 1, "blocks": 1}
# (The derivatives of an energy cannot be traced: hnn and lnn say so.)
LEFT_OUT = ("last-frame", "parabola", "least-squares-line", "hnn", "lnn")
MODELS = [name for name in PRESETS if name not in LEFT_OUT]
# And B, L and N for all others.
FREE = {"lstm": "B", "set-adjacency": "BL", "ridge": "B", "body": "B", "kernel": "B"}
FREE |= dict.fromkeys(("ridge-shared", "estag"), "BN")
FLOAT32 = {"dtype": torch.float32}


def slow(case, yes):
    """A case of a test that waits for `make test-all` if `yes`: ONNX takes seconds for each."""
    return pytest.param(case, marks=[pytest.mark.slow] if yes else [])


def tiny(preset, nodes=4, **settings):
    torch.manual_seed(0)
    known = inspect.signature(PRESETS[preset].model).parameters
    sizes = {name: size for name, size in (TINY | {"frames": 3}).items() if name in known}
    if preset in ("set-flow", "hnn-pairs", "segno"):
        settings |= {"step_fraction": None}  # steps that depend on data cannot be traced
    if preset == "set-2":
        settings |= {"samples": 4}
    if preset == "set-adjacency":
        sizes["blocks"] = 2  # what is attended to on edges reaches nodes in the next block
    model = liven(build_model(preset, nodes=nodes, **sizes | settings)).eval()
    memory = model if preset == "kernel" else getattr(model, "memory", None)
    if memory is not None:
        graph = particles(B=9, N=nodes, horizon=1.0, **FLOAT32)
        target = Forecast(graph.x[:, -1:].roll(1, 2), graph.v[:, :1])
        memory.solve([(graph, target)], [(graph, target)])
    return model


def others(preset):
    """Another number of graphs than the three of the example, and other frames and nodes."""
    free = FREE.get(preset, "BLN")
    sizes = {"B": 5} | ({"L": 6} if "L" in free else {}) | ({"N": 7} if "N" in free else {})
    return particles(seed=1, horizon=2.5, **sizes, **FLOAT32)


def missing_frames(B=3, seed=0):
    graph = particles(B=B, L=5, seed=seed, **FLOAT32)
    seen = torch.ones(B, 5, dtype=torch.bool)
    seen[0, 1] = seen[-1, 0] = seen[-1, 4] = False
    x, v = (t.masked_fill(~seen[..., None, None], torch.nan) for t in (graph.x, graph.v))
    return graph.replace(x=x, v=v, observed=seen.unsqueeze(2))


def session(path):
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(path, options)


def as_forecast(outputs):
    return Forecast(**{name.removeprefix("forecast_"): value for name, value in outputs.items()})


def run_onnx(path, graph):
    fields = {name: field.numpy() for name, field in graph.fields().items()}
    program = session(path)
    names = [value.name for value in program.get_outputs()]
    return as_forecast(
        dict(zip(names, map(torch.from_numpy, program.run(names, fields)), strict=True))
    )


def run_torch(path, graph):
    return as_forecast(torch.export.load(path).module()(**graph.fields()))


RUN = {"onnx": run_onnx, "torch-export": run_torch}


@pytest.fixture(params=RUN)
def format(request):
    if request.param == "onnx":
        pytest.importorskip("onnxscript")
    return request.param


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.pt2"  # a name that torch.export.load likes; ONNX takes any


def assert_same(found, model, graph):
    with torch.no_grad():
        assert_lively(model, graph)
        wanted = model(graph)
    tolerance = 1e-5 if graph.x.dtype == torch.float32 else 1e-12
    assert (found.spread is None) == (wanted.spread is None)
    for name, one in found.fields().items():
        other = getattr(wanted, name)
        size = float(other.abs().max())
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * size)


LATER = ("set-nonequivariant", "set-no-temporal", "set-adjacency", "estag", "body", "ridge")
LATER += ("hnn-pairs", "segno")
LATER += ("set-flow", "kernel", "lstm", "ridge-shared", "egnn")  # an egnn is in ONNX below, too
LATER += ("transformer", "tfn", "se3-transformer")


@pytest.mark.parametrize("preset", [slow(p, p in LATER) for p in MODELS])
def test_onnx_runtime_forecasts_what_the_model_does(preset, tmp_path, capfd):
    pytest.importorskip("onnxscript")
    model, other = tiny(preset), others(preset)
    path = export(model, particles(**FLOAT32), tmp_path / "model.onnx", "onnx")
    assert capfd.readouterr() == ("", "")
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    assert_same(run_onnx(path, other), model, other)
    graph = pytest.importorskip("onnx").load(path).graph
    values = (*graph.input, *graph.output, *graph.value_info)
    names = {dim.dim_param for value in values for dim in value.type.tensor_type.shape.dim}
    free = FREE.get(preset, "BLN")
    assert names == {*free, ""}  # no names of the tracer's
    B, L, N = (axis if axis in free else size for axis, size in {"B": 3, "L": 3, "N": 4}.items())
    assert {value.name: value.shape for value in session(path).get_inputs()} == {
        "x": [B, L, N, 3],
        "v": [B, L, N, 3],
        "edge_attr": [B, 1, N, N, 1],
        "times": [B, L],
        "horizon": [B, 1],
    }
    assert {value.name: value.shape for value in session(path).get_outputs()} == {
        "forecast_x": [B, 1, N, 3],
        "forecast_v": [B, 1, N, 3],
    } | (
        {"forecast_spread": [B, 1, N], "forecast_samples": [B, 4, 1, N, 3]}
        if preset == "set-2"
        else {}
    )


WITHOUT_THE_PACKAGE = """
import sys
sys.modules["spacetime_en"] = None  # an import of it fails
import torch
for path in sys.argv[1:]:
    program = torch.export.load(path).module()
    torch.save(program(**torch.load(path + ".in")), path + ".out")
"""


FEW = ["egnn", "straight-line"]  # what is traced is the same as for ONNX
REST = [name for name in MODELS if name not in FEW]


@pytest.mark.parametrize("presets", [slow(FEW, False), slow(REST, True)])
def test_torch_export_files_run_without_this_package(presets, tmp_path, capfd):
    models = {str(tmp_path / f"{preset}.pt2"): tiny(preset) for preset in presets}
    graphs = {path: others(Path(path).stem) for path in models}
    for path, model in models.items():
        export(model, particles(**FLOAT32), path, "torch-export")
        torch.save(graphs[path].fields(), path + ".in")
    assert capfd.readouterr() == ("", "")
    command = [sys.executable, "-c", WITHOUT_THE_PACKAGE, *models]
    subprocess.run(command, check=True, cwd=tmp_path, timeout=300)
    for path, model in models.items():
        found = torch.load(path + ".out")
        assert_same(as_forecast(found), model, graphs[path])


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["set", "set-2"])
def test_missing_nodes_and_frames_are_left_out(preset, format, path):
    model, other = tiny(preset), masked(seed=1, L=7, N=6, **FLOAT32)
    assert other.x.isnan().any()
    export(model, masked(**FLOAT32), path, format)
    assert_same(RUN[format](path, other[[2, 1, 0, 2]]), model, other[[2, 1, 0, 2]])


def test_sizes_that_disagree_are_refused(path):
    export(tiny("mlp"), particles(**FLOAT32), path, "torch-export")
    program, fields = torch.export.load(path).module(), others("mlp").fields()
    with pytest.raises(RuntimeError, match=r"'times'.shape\[1\] to be equal to 6, but got 5"):
        program(**fields | {"times": fields["times"][:, 1:]})  # although an MLP reads no times


CELL = torch.tensor([[[0.0, 2.0, 0.5], [0.0, 0.0, 1.5], [2.5, 0.0, 1.0]]])  # no diagonal
KINDS = {
    # model, example, another graph
    "a box, in double precision": (
        "straight-line",
        particles(box=[2.0, 3.0, 4.0]),
        particles(2, 4, 7, seed=1, box=CELL),
    ),
    "neighbours for each frame": (
        "egnn",
        particles(N=6, neighbours=random_neighbours(6, 3, 3, 3), **FLOAT32),
        particles(2, 4, 7, seed=1, neighbours=random_neighbours(7, 2, 2, 4), **FLOAT32),
    ),
    "missing frames, sorted for an LSTM": (
        "lstm",
        missing_frames(),
        missing_frames(B=4, seed=1),
    ),
}


@pytest.mark.parametrize("kind", [slow(k, "box" not in k) for k in KINDS])
def test_what_onnx_finds_hard_is_right(kind, path):
    pytest.importorskip("onnxscript")
    preset, example, other = KINDS[kind]
    model = tiny(preset)
    export(model, example, path, "onnx")
    assert_same(run_onnx(path, other), model, other)


def test_one_graph_is_example_enough_and_the_file_says_what_it_is(format, tmp_path):
    model, example = tiny("mlp", length_scale=2.0), particles(B=1, **FLOAT32)
    path = export(model, example, tmp_path / "new folder" / "model.pt2", format)
    other = others("mlp")
    for graph in (other, other[0]):
        assert_same(RUN[format](path, graph), model, graph)

    if format == "onnx":
        text = session(path).get_modelmeta().custom_metadata_map["spacetime_en"]
    else:
        files = {"spacetime_en.json": ""}
        torch.export.load(path, extra_files=files)
        text = files["spacetime_en.json"]
    record = json.loads(text)
    assert record["version"] == spacetime_en.__version__
    assert record["model"] == "MLP"
    assert record["config"] == model.config
    assert list(record["inputs"]) == ["x", "v", "edge_attr", "times", "horizon"]
    assert record["inputs"]["x"] == {"dtype": "float32", "shape": ["B", "L", "N", 3]}
    assert record["inputs"]["times"] == {"dtype": "float64", "shape": ["B", "L"]}
    assert record["outputs"]["forecast_v"] == {"dtype": "float32", "shape": ["B", 1, "N", 3]}
    assert record["example"]["edge_attr"] == [1, 1, 4, 4, 1]

    content = path.read_bytes()  # neither the user's data nor their folders
    assert example.x.numpy().tobytes() not in content
    assert str(Path(spacetime_en.__file__).parent).encode() not in content


def test_all_is_left_as_it_was(path):
    model = tiny("set-no-temporal", dropout=0.5, blocks=2).train()  # so that dropout shows
    levels = {name: logging.getLogger(name).level for name in ("torch", "onnxscript")}
    filters = list(warnings.filters)
    export(model, particles(**FLOAT32), path, "torch-export")
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    assert {name: logging.getLogger(name).level for name in levels} == levels
    assert warnings.filters == filters
    other = others("set-no-temporal")
    forecast = run_torch(path, other)
    assert not forecast.x.requires_grad
    assert_same(forecast, model.eval(), other)  # without dropout


class Mine(LastFrame):
    """Asks for B, as users' models do."""

    def forecast(self, graph: SpacetimeGraph):
        forecast = super().forecast(graph)
        ones = torch.ones(self.batch(graph), 1, 1, 1)
        return Forecast(forecast.x * ones, forecast.v * ones)

    def batch(self, graph: SpacetimeGraph):
        return len(graph)


class Fixed(Mine):
    def batch(self, graph: SpacetimeGraph):
        return 3


class Unsayable(LeastSquaresLine):
    def forecast(self, graph: SpacetimeGraph):
        forecast = super().forecast(graph)
        size = torch.linalg.svdvals(forecast.x).sum(-1)[..., None, None]
        return Forecast(size * forecast.x, forecast.v)


def test_a_model_of_ones_own_may_ask_for_the_number_of_graphs(path):
    export(Mine(), particles(**FLOAT32), path, "torch-export")
    other = others("last-frame")
    assert_same(run_torch(path, other), Mine(), other)


def test_ridge_as_a_base_leaves_the_number_of_graphs_free(path):
    model, graph = tiny("set-2", base="ridge"), particles(B=9, **FLOAT32)
    target = Forecast(graph.x[:, -1:] + 1, graph.v[:, -1:])
    model.calibrate((graph, target), (graph, target))
    export(model, graph, path, "torch-export")
    other = particles(B=2, seed=1, **FLOAT32)
    assert_same(run_torch(path, other), model, other)


def test_a_model_that_fixes_the_number_of_graphs_is_refused(path):
    message = r"model: Fixed fixes the number of graphs .* from graph.x.shape\[0\]"
    with pytest.raises(InputError, match=message):
        export(Fixed(), particles(**FLOAT32), path, "torch-export")


def test_what_cannot_be_said_in_onnx_is_told(tmp_path):
    pytest.importorskip("onnxscript")
    message = r"model: ONNX cannot express it \(No ONNX function .*svd.*\); use format='torch-e"
    with pytest.raises(InputError, match=message) as error:
        export(Unsayable(), particles(**FLOAT32), tmp_path / "model.onnx", "onnx")
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_what_the_model_refuses_is_not_exported(format, path):
    with pytest.raises(InputError, match="observed: this model is tied to N = 5 nodes"):
        export(tiny("lstm", nodes=5), masked(**FLOAT32), path, format)
    with pytest.raises(InputError, match=r"its dtype is torch.float64, the model's is .*float32"):
        export(tiny("mlp"), particles(), path, format)
    assert not path.exists()


def test_an_existing_file_is_kept(format, path):
    path.write_text("mine")
    with pytest.raises(InputError, match="pt2: exists already; choose another name or delete it"):
        export(tiny("mlp"), particles(**FLOAT32), path, format)
    assert path.read_text() == "mine"


def test_an_unknown_format_is_refused(path):
    with pytest.raises(InputError, match="format: expected 'onnx' or 'torch-export', found 'onx'"):
        export(SET(**TINY), particles(**FLOAT32), path, "onx")


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_without_the_extra_it_says_what_to_install(package, path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", sys)  # it is there, if it is not the missing one
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"needs the package {package}: pip install 'spacetime-en\[onnx\]'"
    with pytest.raises(ImportError, match=message):
        export(SET(**TINY), particles(**FLOAT32), path, "onnx")


@pytest.mark.parametrize("format", [slow(f, f == "torch-export") for f in RUN], indirect=True)
def test_a_direction_of_space_is_an_input_like_the_others(path, format):
    graph, other = (particles(B=b, seed=b, up=[0.0, 1.0, 0.0], **FLOAT32) for b in (3, 5))
    model = tiny("egnn", up=True)
    export(model, graph, path, format)
    assert_same(RUN[format](path, other), model, other)
