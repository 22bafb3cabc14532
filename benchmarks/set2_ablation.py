"""Ablation of SET-2: ``python -m benchmarks.set2_ablation [ROW ...] --data charged-1000 walk``.

Every row is the same training with one idea changed; seed 0, one thread, the same budget of
processor time. Prints the lowest validation error (position MSE: mean, median, 90th percentile),
by which the defaults were chosen: test windows are not read.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.general import ROWS as DATA
from spacetime_en._util.files import write_text_atomically
from spacetime_en.evaluation import measure_errors
from spacetime_en.graph import SpacetimeGraph
from spacetime_en.nn.layers.egcl import mlp
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.layers.virtual_points import HEADS, VirtualPointAttention
from spacetime_en.nn.models import path
from spacetime_en.nn.models.set2 import DEGREE, SET2
from spacetime_en.nn.state import State, at_frame
from spacetime_en.runs.config import Config
from spacetime_en.training import TrainingSettings, fit
from spacetime_en.training.settings import preset_defaults

RESULTS = Path("results/set2_ablation")
FREQUENCIES = 4  # of the encoding of relative times
KEYS = 16  # width of keys and queries in each head of attention over time


# --- replacements of parts ------------------------------------------------------------------------


class Summed(VirtualPointAttention):
    """The unweighted sum over neighbours in place of attention."""

    def attention(self, m_ij: Tensor, mask: Tensor) -> Tensor:
        return mask.to(m_ij).expand(*mask.shape[:-1], HEADS)


class WithGlobal(nn.Module):
    """A layer, then a global average over nodes: pooled to one node, and read back by all."""

    def __init__(self, layer: VirtualPointAttention, hidden: int, channels: int) -> None:
        super().__init__()
        self.layer = layer
        self.read = mlp(2 * hidden, hidden, hidden + channels)

    def forward(
        self, h: Tensor, vectors: Tensor, x_ij: Tensor, a_ij: Tensor, edges: Neighbourhood
    ) -> tuple[Tensor, Tensor]:
        h, vectors = self.layer(h, vectors, x_ij, a_ij, edges)
        # (Padding counts as a node at rest: the same in all compared rows.)
        every, mean = h.mean(1, keepdim=True), vectors.mean(1, keepdim=True)
        update = self.read(torch.cat([h, every.expand_as(h)], dim=-1))
        scalars, gates = update.split([h.shape[-1], vectors.shape[-1]], dim=-1)
        return h + scalars, vectors + gates.unsqueeze(-2) * mean


class AttentionOverTime(SET2):
    """Frames mixed by attention over time instead of by polynomials.

    The query comes from a node's last frame, keys from each frame: speed, distance from the last
    frame, and an encoding of the time between them. Values are displacements and velocities.
    """

    query: nn.Module
    key: nn.Module

    def history(self, graph: SpacetimeGraph, state: State) -> Tensor:
        last, heads = graph.last_observed, DEGREE + 1
        v = at_frame(state.v, last)  # (B, N, n)
        moved = state.x - at_frame(state.x, last).unsqueeze(1)  # (B, L, N, n)
        age = (graph.since / graph.since.amax(1, keepdim=True).clamp(min=1e-30)).to(v)  # (B, L)
        turns = age.unsqueeze(-1) * 2.0 ** torch.arange(FREQUENCIES).to(v) * torch.pi / 2
        clock = torch.cat([turns.cos(), turns.sin()], dim=-1)  # (B, L, 2 frequencies)
        clock = clock.unsqueeze(2).expand(-1, -1, v.shape[1], -1)
        sizes = [torch.log1p(t.norm(dim=-1, keepdim=True)) for t in (state.v, moved)]
        keys = self.key(torch.cat([*sizes, clock], dim=-1)).unflatten(-1, (heads, -1))
        query = self.query(torch.log1p(v.norm(dim=-1, keepdim=True))).unflatten(-1, (heads, -1))
        logits = torch.einsum("bnhc,blnhc->bnhl", query, keys) / keys.shape[-1] ** 0.5
        if graph.observed is not None:
            unseen = ~graph.observed.mT.unsqueeze(2)
            logits = logits.masked_fill(unseen, torch.finfo(v.dtype).min)
        weights = logits.softmax(-1)
        mixed = [torch.einsum("bnhl,blnc->bnch", weights, t) for t in (moved, state.v)]
        return torch.cat([v.unsqueeze(-1), *mixed], dim=-1)


class Shortened(SET2):
    """Histories without the polynomials of high degree."""

    degree = 0

    def history(self, graph: SpacetimeGraph, state: State) -> Tensor:
        kept = torch.arange(DEGREE + 1) <= self.degree
        kept = torch.cat([torch.ones(1, dtype=torch.bool), kept, kept])
        return super().history(graph, state) * kept.to(state.x)


class Straight(Shortened):
    """Degrees 0 and 1."""

    degree = 1


# --- the rows -------------------------------------------------------------------------------------


def one_point(model: SET2) -> None:
    """All virtual points at the node itself."""
    for layer in model.layers:
        nn.init.zeros_(layer.offsets).requires_grad_(False)


def summed(model: SET2) -> None:
    """No attention."""
    for layer in model.layers:
        layer.__class__ = Summed


def over_time(model: SET2) -> None:
    """Attention over time."""
    width = (DEGREE + 1) * KEYS
    model.query, model.key = mlp(1, 32, width), mlp(2 + 2 * FREQUENCIES, 32, width)
    model.__class__ = AttentionOverTime


def with_global(model: SET2) -> None:
    """A global layer after each layer."""
    hidden, channels = model.settings["hidden"], model.settings["channels"]
    model.layers = nn.ModuleList(WithGlobal(layer, hidden, channels) for layer in model.layers)


Change = Callable[[SET2], None]
# By name: the class, its settings, those of the training, and what is changed afterwards.
ROWS: dict[str, tuple[type[SET2], dict[str, Any], dict[str, Any], Change | None]] = {
    "set-2": (SET2, {}, {}, None),
    "base: last frame": (SET2, {"base": "last-frame"}, {}, None),
    "base: straight line": (SET2, {"base": "straight-line"}, {}, None),
    "history of degree 0": (Shortened, {}, {}, None),
    "history of degree 1": (Straight, {}, {}, None),
    "attention over time": (SET2, {}, {}, over_time),
    "one point": (SET2, {}, {}, one_point),
    "eight points": (SET2, {"points": 8}, {}, None),
    "sum over neighbours": (SET2, {}, {}, summed),
    "one layer": (SET2, {"layers": 1}, {}, None),
    "global layer": (SET2, {}, {}, with_global),
    "squared errors": (SET2, {}, {}, None),
    "no moving average": (SET2, {}, {"ema": None}, None),
    "no jitter": (SET2, {}, {"jitter": 0.0}, None),
}
SQUARED = (30.0, 30.0)  # so large that the loss is almost everywhere squared


def measured(row: str, data: str, budget: dict[str, Any]) -> dict[str, Any]:
    """Train a row on the data of a row of `benchmarks.general`; its validation error."""
    kind, model_settings, training, change = ROWS[row]
    task_settings = DATA[data].task
    settings = preset_defaults("set-2", task_settings.get("name")).training | training
    settings |= budget | {"seed": 0}
    config = Config("set-2", {}, dict(task_settings), TrainingSettings(**settings))
    task = config.load_task()
    torch.manual_seed(0)
    arguments = config.build_model(task).settings | DATA[data].model | model_settings
    if arguments["named"]:
        arguments["nodes"] = task.train[:1][0].x.shape[2]
    torch.manual_seed(0)
    model = kind(**arguments)
    if change is not None:
        change(model)
    usual = path.OUTLIER
    try:
        if row == "squared errors":
            path.OUTLIER = SQUARED
        progress = fit(model, task, config.training, display=False)
    finally:
        path.OUTLIER = usual
    errors, _ = measure_errors(model, task.val, 500)
    return {
        "row": row,
        "data": data,
        "budget": budget,
        "steps": progress.step,
        "best_step": progress.best_step,
        "validation": errors.summary(),
    }


def main() -> None:
    """Print the requested rows; existing ones are not recomputed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", nargs="*", default=list(ROWS), help=", ".join(ROWS))
    parser.add_argument("--data", nargs="+", default=["charged-1000", "charged-10000", "walk"])
    parser.add_argument("--max-time", default="100s", help="of each row")
    given = parser.parse_args()
    torch.set_num_threads(1)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for data in given.data:
        for row in given.rows:
            words = row.replace(": ", "-").replace(" ", "-")
            result = RESULTS / f"{data}--{words}.json"
            if not result.exists():
                command = f"python -m benchmarks.set2_ablation '{row}' --data {data} --max-time "
                found = {"command": f"{command}{given.max_time}"}
                found |= measured(row, data, {"max_time": given.max_time, "clock": "cpu"})
                write_text_atomically(result, json.dumps(found, indent=1) + "\n")
            found = json.loads(result.read_text())
            x, v = (found["validation"][f"{what}_mse"] for what in ("position", "velocity"))
            print(
                f"{data:14} {row:22} {x['mean']:.4g} ± {x['standard_error']:.2g} / "
                f"{x['median']:.3g} / {x['p90']:.3g}  v {v['mean']:.3g}  {found['steps']} steps",
                flush=True,
            )


if __name__ == "__main__":
    main()
