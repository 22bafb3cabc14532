"""Export a model as a file that runs without this package: a program from tensors to tensors.

The program's inputs are the fields of a graph in canonical form, by name, as in
``graph.fields()``. Its outputs are ``forecast_x``, ``forecast_v`` and, for models that have them,
``forecast_spread`` and ``forecast_samples``, with the axes of a :class:`~spacetime_en.Forecast`. It
does not validate values: unobserved entries may hold anything, but masks, indices and times must
be correct.
"""

from __future__ import annotations

import copy
import io
import json
import os
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from spacetime_en._util.errors import InputError, require
from spacetime_en._util.files import create_atomically, refuse_existing
from spacetime_en._util.progress import silenced
from spacetime_en._util.schema import checked
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.loading import check_finite

if TYPE_CHECKING:
    from torch.export import ExportedProgram

Format = Literal["onnx", "torch-export"]
METADATA_KEY = "spacetime_en"

# The axes of the fields in canonical form, with the letters of :mod:`spacetime_en.graph`.
AXES = {
    "x": "BLNn",
    "v": "BLNn",
    "features": "BLNd",
    "edge_attr": "BLNKe",
    "neighbours": "BLNK",
    "observed": "BLN",
    "box": "Bnn",
    "up": "Bn",
    "times": "BL",
    "horizon": "BT",
}
Shape = tuple[str | int, ...]  # a letter for a size that may vary, a number for one that may not


@checked
def export(
    model: Forecaster,
    example: SpacetimeGraph,
    path: str | os.PathLike[str],
    format: Format,
) -> Path:
    """Export the model, in eval mode and on the CPU, as a program that runs without this package.

    B is free. So are L, N and the K of neighbour lists, except where

    - the example has size 1 (an L of 1 means "constant in time"; one graph is example enough),
    - the model is tied to N (LSTM, ridge, kernel, body, all adjacency forms but ``"edges"``) or to
      L (the first four and ESTAG; the LSTM is unrolled over the frames of the example).

    T is that of the example; for a model with a single horizon, the program forecasts one step of a
    path. In a box, torch.export needs L >= 3. The file describes itself in JSON: the names, types
    and shapes of inputs and outputs (a letter for a free size), the shapes of the example, the
    model's class and config, this package's version, and, if known, the ``origin`` to subtract from
    positions beforehand and to add afterwards (0 for data near 0). This is the entry
    ``spacetime_en`` of an ONNX file's metadata, or the extra file ``spacetime_en.json`` of a
    torch.export file.

    Args:
        model: the model to export; it is not changed.
        example: a graph with the fields that the program will take; its values are not stored.
        path: the file to write, usually ``.onnx`` or ``.pt2``; it must not exist.
        format: ``"onnx"`` (the extra ``onnx``), or ``"torch-export"``, which ``torch.export.load``
            reads; that program is called by name, ``program.module()(x=..., v=..., ...)``.
    Returns: the path.
    """
    path = Path(path)
    refuse_existing(path)
    if format == "onnx":
        require("onnx", "onnx")
        require("onnxscript", "onnx")
    check_finite(model.state_dict(), "model")
    model = copy.deepcopy(model).cpu().eval().requires_grad_(False)
    example = example.to("cpu")
    if not model.forecasts_paths:
        example = example._replace(horizon=example.horizon[:, :1])
    # The model checks the values of the example here; it cannot while being traced.
    outputs = _outputs(model(example))
    # The exporters warn about their own internals.
    with silenced("torch", "onnxscript"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program, inputs = _trace(model, example)
        shapes = {name: _output_shape(output, inputs["x"]) for name, output in outputs.items()}
        write = _onnx if format == "onnx" else _torch_export
        content = write(program, inputs, shapes, _description(model, example, inputs, shapes))
    with create_atomically(path) as part:
        part.write_bytes(content)
    return path


def _trace(model: Forecaster, example: SpacetimeGraph) -> tuple[ExportedProgram, dict[str, Shape]]:
    """Trace the model as a program in which every size is free unless the model fixes it.

    Returns: the program, and the shapes of its inputs, in order.
    """
    from torch.export import Dim  # imports PyTorch's compiler
    from torch.fx.experimental.symbolic_shapes import is_concrete_int

    # Tracing treats a size of 1 as a constant, and relies on strides.
    several = example[[0, 0]] if len(example) == 1 else example
    fields = {name: field.contiguous() for name, field in several.fields().items()}
    axes = _axes(several)
    free = {
        name: {i: Dim.AUTO for i, size in enumerate(shape) if isinstance(size, str)}
        for name, shape in axes.items()
    }
    # Without Dynamo (not strict), len(graph) is a number, and a model that uses it fixes B.
    for strict in (False, True):
        program = torch.export.export(
            _TensorFunction(model, axes), (), fields, dynamic_shapes=free, strict=strict
        )
        inputs = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
        fixed: dict[str | int, int] = {
            axis: int(size)
            for name, shape in axes.items()
            for axis, size in zip(shape, inputs[name].shape, strict=True)
            if is_concrete_int(size)
        }
        if "B" not in fixed:
            break
    else:
        raise InputError(
            f"model: {type(model).__name__} fixes the number of graphs at that of the example; "
            "let it take B from graph.x.shape[0], and compute with tensors alone."
        )
    # The file must contain neither the example's data nor source paths.
    program.example_inputs = None
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    program.graph.eliminate_dead_code()  # such as the edges in models that ignore them
    program.graph_module.recompile()
    return program, {name: tuple(fixed.get(a, a) for a in shape) for name, shape in axes.items()}


def _outputs(forecast: Forecast) -> dict[str, Tensor]:
    """The tensors of a forecast, by the names of the program's outputs."""
    kept = ("x", "v", "spread", "samples")
    return {f"forecast_{k}": t for k, t in forecast.fields().items() if k in kept}


def _output_shape(output: Tensor, x: Shape) -> Shape:
    """The shape of an output (B, [S,] T, N[, n]) of a program that takes positions of shape x."""
    B, _, N, _ = x
    nodes = 2 if output.ndim < 5 else 3  # the axis of N
    return tuple(B if i == 0 else N if i == nodes else size for i, size in enumerate(output.shape))


def _description(
    model: Forecaster, example: SpacetimeGraph, inputs: dict[str, Shape], outputs: dict[str, Shape]
) -> str:
    """The description of the program, as JSON."""
    fields = example.fields()
    dtypes = {name: str(field.dtype).removeprefix("torch.") for name, field in fields.items()}
    record: dict[str, Any] = {
        "version": version("spacetime-en"),
        "model": type(model).__name__,
        "config": dict(model.config),
        "inputs": {n: {"dtype": dtypes[n], "shape": shape} for n, shape in inputs.items()},
        "outputs": {n: {"dtype": dtypes["x"], "shape": shape} for n, shape in outputs.items()},
        "example": {name: tuple(field.shape) for name, field in fields.items()},
    }
    if model.trained_on is not None:
        record["origin"] = model.trained_on.origin
    return json.dumps(record)


def _axes(graph: SpacetimeGraph) -> dict[str, Shape]:
    """The shape of each field, with letters for sizes that may vary; on a complete graph K is N."""
    complete = graph.neighbours is None
    return {
        name: tuple(
            size if size == 1 or axis not in "BLNK" else "N" if complete and axis == "K" else axis
            for axis, size in zip(AXES[name], field.shape, strict=True)
        )
        for name, field in graph.fields().items()
    }


class _TensorFunction(nn.Module):
    """The model as a function of a graph's fields, all of which it uses; see :func:`_axes`."""

    def __init__(self, model: Forecaster, axes: dict[str, Shape]) -> None:
        super().__init__()
        self.model = model
        self.axes = axes

    def forward(
        self,
        x: Tensor,
        v: Tensor,
        features: Tensor | None = None,
        edge_attr: Tensor | None = None,
        neighbours: Tensor | None = None,
        observed: Tensor | None = None,
        box: Tensor | None = None,
        up: Tensor | None = None,
        times: Tensor | None = None,
        horizon: Tensor | None = None,
    ) -> dict[str, Tensor]:
        lists = edge_attr, neighbours, observed
        fields = dict(zip(AXES, (x, v, features, *lists, box, up, times, horizon), strict=True))
        sizes: dict[str | int, Any] = {}
        for name, shape in self.axes.items():
            field = fields[name]
            assert field is not None
            for axis, size in zip(shape, field.shape, strict=True):
                # The same letter means the same size, even in fields that the model ignores.
                if isinstance(axis, str):
                    torch._check(size == sizes.setdefault(axis, size))
        graph = object.__new__(SpacetimeGraph)  # as _unchecked does, but traceable by Dynamo
        for name, value in fields.items():
            object.__setattr__(graph, name, value)
        return _outputs(self.model.forecast(graph))


def _torch_export(
    program: ExportedProgram, inputs: dict[str, Shape], outputs: dict[str, Shape], record: str
) -> bytes:
    """The content of a ``.pt2`` file."""
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={f"{METADATA_KEY}.json": record})
    return buffer.getvalue()


def _onnx(
    program: ExportedProgram, inputs: dict[str, Shape], outputs: dict[str, Shape], record: str
) -> bytes:
    """The content of an ONNX file."""
    if any(node.target in MISSING for node in program.graph.nodes):
        program = program.run_decompositions(MISSING)
    try:
        exported = torch.onnx.export(
            program,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamo=True,
            verbose=False,
        )
    except torch.onnx.OnnxExporterError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise InputError(
            f"model: ONNX cannot express it ({str(cause).splitlines()[0].rstrip('.')}); use "
            "format='torch-export'."
        ) from error
    assert exported is not None
    proto: Any = exported.model_proto
    # Name the axes by our letters, and drop the inner shapes, which have the tracer's names.
    proto.graph.ClearField("value_info")
    shapes = inputs | outputs
    for value in (*proto.graph.input, *proto.graph.output):
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, shapes[value.name], strict=True):
            if isinstance(size, str):
                dim.dim_param = size
            else:
                dim.dim_value = size
    require("onnx", "onnx").helper.set_model_props(proto, {METADATA_KEY: record})
    content: bytes = proto.SerializeToString()
    return content


def _inverse(a: Tensor) -> Tensor:
    """The inverse of matrices (B, n, n), which ONNX lacks, by the Faddeev-LeVerrier algorithm.

    With M_1 = 1 and c_k = -tr(A M_k) / k, M_(k+1) = A M_k + c_k; as A M_n + c_n = 0
    (Cayley-Hamilton), the inverse is -M_n / c_n. For a box, n = 2 or 3, it is exact to rounding.
    """
    n = a.shape[-1]
    one = torch.eye(n, dtype=a.dtype, device=a.device)
    m = one.expand_as(a)
    for k in range(1, n + 1):
        product = a @ m
        c = -(product * one).sum((-2, -1), keepdim=True) / k
        if k < n:
            m = product + c * one
    return -m / c


def _argsort(a: Tensor, stable: bool, dim: int = -1, descending: bool = False) -> Tensor:
    """A stable argsort; in ONNX every sort is, as TopK keeps the order of equal values."""
    return a.sort(dim, descending).indices


# Operators that ONNX lacks, in terms of ones that it has.
MISSING = {
    torch.ops.aten.linalg_inv.default: _inverse,
    torch.ops.aten.argsort.stable: _argsort,
}
