"""The tables: rows of numbers from the results of experiments, as JSON and as Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spacetime_en.reproduce.experiment import Result, read_result
from spacetime_en.reproduce.plan import (
    BASELINES,
    HORIZONS,
    MODELS,
    TABLES,
    TITLES,
    Data,
    Experiment,
    Scale,
    table,
)
from spacetime_en.reproduce.published import PUBLISHED

TRIVIAL = {"last_frame": "last frame", "straight_line": "straight line"}
LEAST_SQUARES = {"least_squares_line": "least squares line"}
# NOTES: by posterior sampling, N = 5, L = 10, against the clean target.
NOISY_FLOOR = {10_000: 10.6, 1_000: 0.122}


@dataclass(frozen=True)
class Cell:
    """A number and how it is printed.

    Args:
        value: to sort by; None: there is none.
        text: to print.
    """

    value: float | None
    text: str


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Args:
        name, title: of the table.
        columns: their heads.
        rows: of each its label and its cells.
        notes: sentences below it.
    """

    name: str
    title: str
    columns: list[str]
    rows: list[tuple[str, list[Cell]]]
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts."""
        return asdict(self)

    def to_markdown(self) -> str:
        """A GitHub table, with its notes."""
        head = ["", *self.columns]
        lines = [" | ".join(head), " | ".join(["---", *["--:"] * len(self.columns)])]
        lines += [" | ".join([label, *(c.text for c in cells)]) for label, cells in self.rows]
        notes = "".join(f"\n{note}\n" for note in self.notes)
        return "\n".join(f"| {line} |" for line in lines) + "\n" + notes


def number(value: float | None, digits: int = 3) -> str:
    """Short, and never 0 for what is not: 3.21, 0.0123, 1.2e-07, 12,345."""
    if value is None or math.isnan(value):
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        text = f"{value:.{digits}g}"
        return text if "e" not in text else f"{value:,.0f}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.1e}"


def _cell(values: Sequence[float | None], show: Callable[[float], str] = number) -> Cell:
    """The mean over seeds, with the standard deviation if there are several."""
    known = [v for v in values if v is not None]
    if not known:
        return Cell(None, "–")
    mean = statistics.fmean(known)
    if len(known) < 2 or len(set(known)) == 1:
        return Cell(mean, show(mean))
    return Cell(mean, f"{show(mean)} ± {number(statistics.stdev(known), 2)}")


def _time(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


Column = Callable[[Result], float | None]


def _error(kind: str, key: str, where: str = "test") -> Column:
    def read(result: Result) -> float | None:
        found = result[where] if where == "test" else result[where]["model"]
        return found[kind][key]  # type: ignore[no-any-return]

    return read


def _training(key: str) -> Column:
    return lambda result: result.get("training", {}).get(key)


ERRORS: dict[str, Column] = {
    "position MSE": _error("position_mse", "mean"),
    "median": _error("position_mse", "median"),
    "p90": _error("position_mse", "p90"),
    "velocity MSE": _error("velocity_mse", "mean"),
}
COST: dict[str, Column] = {
    "learning rate": lambda result: result["rate"],
    "training": _training("seconds"),
    "samples": _training("samples"),
    "equivariance error": lambda result: max(result["test"]["equivariance_error"].values()),
}


@dataclass(frozen=True)
class Results:
    """The results in a folder, by experiment.

    Args:
        folder: where they are.
        scale: at which they were made.
    """

    folder: Path
    scale: Scale

    def of(self, experiments: Sequence[Experiment]) -> list[Result]:
        """Those that there are."""
        found = (read_result(self.folder, experiment) for experiment in experiments)
        return [result for result in found if result is not None]

    def seeds(self, data: Data, model: str) -> list[Result]:
        """The results of a model on a task, one a seed."""
        return self.of([Experiment(data, model, seed) for seed in self.scale.seeds])


def make_tables(results: Results) -> list[Table]:
    """Every table that has at least one result."""
    made = [_make(name, results) for name in TABLES]
    made.append(audit(results))
    return [table for table in made if table.rows]


def _make(name: str, results: Results) -> Table:
    if name == "horizons":
        return horizons(results)
    if name == "ablation":
        return ablation(results)
    if name == "noisy":
        return noisy(results)
    return compared(name, results)


def compared(name: str, results: Results) -> Table:
    """The models beside each other on one task, with what the paper printed."""
    data = table(name, results.scale)[0].data
    columns: dict[str, Column] = ERRORS | COST
    rows = []
    for model in BASELINES:
        rows += _row(MODELS[model].label, results.seeds(data, model), columns, name, model)
    for experiment in table(name, results.scale):
        if experiment.rate is not None:
            label = f"{MODELS[experiment.model].label}, the paper's rate"
            rows += _row(label, results.of([experiment]), columns, name, None)
    rows += _trivial_rows(results, data, TRIVIAL, columns)
    heads = ["parameters", "published", *columns]
    return Table(name, TITLES[name], heads, rows, _notes(results, data))


def ablation(results: Results) -> Table:
    """SET with one thing changed at a time."""
    columns: dict[str, Column] = {"validation MSE": _training("val_mse")} | ERRORS | COST
    data, rows = Data(), []
    own = results.seeds(data, "set")
    reference = _cell([_error("position_mse", "mean")(r) for r in own]).value
    for experiment in dict.fromkeys(e.model for e in table("ablation", results.scale)):
        name = MODELS[experiment].label + ("" if MODELS[experiment].trains else " (untrained)")
        own = results.seeds(data, experiment)
        for label, cells in _row(name, own, columns, "ablation", experiment):
            mean = cells[3].value
            ratio = mean / reference if mean is not None and reference else None
            rows.append((label, [*cells, Cell(ratio, f"{ratio:.2f}×" if ratio else "–")]))
    if rows:
        trivial = _trivial_rows(results, data, TRIVIAL, columns)
        rows += [(label, [*cells, Cell(None, "–")]) for label, cells in trivial]
    notes = _notes(results, data)
    if rows:
        notes.append(
            "Without spatial attention no parameter influences the forecast: there is nothing to "
            "train, and the row is of the model as it is built."
        )
    heads = ["parameters", "published", *columns, "ratio to SET"]
    return Table("ablation", TITLES["ablation"], heads, rows, notes)


def noisy(results: Results) -> Table:
    """Errors against what is observed, and against the truth behind it."""
    data = Data(noisy=True)
    columns: dict[str, Column] = {
        "noisy target: MSE": _error("position_mse", "mean"),
        "clean target: MSE": _error("position_mse", "mean", "clean"),
        "median": _error("position_mse", "median", "clean"),
        "p90": _error("position_mse", "p90", "clean"),
        "velocity MSE": _error("velocity_mse", "mean", "clean"),
    }
    rows = []
    for model in BASELINES:
        rows += _row(
            MODELS[model].label, results.seeds(data, model), columns | COST, "noisy", model
        )
    first = results.of(table("noisy", results.scale))[:1]
    for key, label in (TRIVIAL | LEAST_SQUARES).items() if first else ():
        clean = first[0]["clean"][key]
        values = [
            first[0]["test"][key]["mean"],
            *(clean["position_mse"][k] for k in ("mean", "median", "p90")),
            clean["velocity_mse"]["mean"],
        ]
        cells = [Cell(v, number(v)) for v in values]
        rows.append((label, [_count(0), *_blank(1), *cells, *_blank(len(COST))]))
    notes = _notes(results, data)
    if rows:
        floor = NOISY_FLOOR[data.horizon]
        rows.append(("floor, about", [*_blank(2), Cell(floor + 0.5, number(floor + 0.5)),
                     Cell(floor, number(floor)), *_blank(3 + len(COST))]))  # fmt: skip
        notes.append(
            f"No model can do better than about {floor} against the clean target (posterior "
            "sampling, N = 5, L = 10), and 0.5 more, the variance of the noise, against the noisy "
            "one. The models are trained on noisy targets, as in the paper."
        )
    heads = ["parameters", "published", *columns, *COST]
    return Table("noisy", TITLES["noisy"], heads, rows, notes)


def horizons(results: Results) -> Table:
    """Mean and median of each model, retrained for each horizon."""
    rows = []
    seed = results.scale.seeds[0]
    by_model = {
        model: [results.of([Experiment(Data(horizon=h), model, seed)]) for h in HORIZONS]
        for model in BASELINES
    }
    for model, found in by_model.items():
        if any(found):
            cells = [_mean_and_median([r["test"]["position_mse"] for r in own]) for own in found]
            rows.append((MODELS[model].label, cells))
    for key, label in TRIVIAL.items() if rows else ():
        cells = []
        for place in range(len(HORIZONS)):
            known = [r for found in by_model.values() for r in found[place]]
            cells.append(_mean_and_median([r["test"][key] for r in known[:1]]))
        rows.append((label, cells))
    heads = [f"H = {h:,}" for h in HORIZONS]
    notes = [
        "Position MSE: mean (median). One seed; every model is trained anew for every horizon."
    ]
    return Table("horizons", TITLES["horizons"], heads, rows, notes if rows else [])


def audit(results: Results) -> Table:
    """What zero targets do to the error, beside what was published."""
    rows = []
    clean, noise = (Data(noisy=noisy, zero=True) for noisy in (False, True))
    for model in BASELINES:
        own, with_noise = results.seeds(clean, model), results.seeds(noise, model)
        true = results.seeds(Data(), model)
        if not own and not with_noise:
            continue
        mean = _error("position_mse", "mean")
        published, noisy_published = PUBLISHED["baselines"][model], PUBLISHED["noisy"][model]
        shifts = (own or with_noise)[0]["test"]["equivariance_error"]["translation"] < 1e-3
        rows.append(
            (
                MODELS[model].label,
                [
                    _published(published),
                    _cell([mean(r) for r in own]),
                    _cell([r["centroid_variance"] if shifts else None for r in own]),
                    _cell([mean(r) for r in true]),
                    _published(noisy_published),
                    _cell([mean(r) for r in with_noise]),
                ],
            )
        )
    heads = [
        "published",
        "zero targets",
        "bound",
        "true targets",
        "published, noisy",
        "zero targets with noise",
    ]
    notes = [
        "AUDIT: the columns of zero targets are made with `--targets zero`, and measure how well a "
        "model outputs 0.",
        "The bound is the variance of the inputs' centroid, which no translation-equivariant model "
        "can go below on zero targets; noise of variance 0.5 around zero cannot be forecast "
        "better than 0.5.",
    ]
    return Table("published", "The published figures", heads, rows, notes if rows else [])


# --- parts of tables ------------------------------------------------------------------------------


def _row(
    label: str,
    results: Sequence[Result],
    columns: dict[str, Column],
    name: str,
    model: str | None,
) -> list[tuple[str, list[Cell]]]:
    """One row, if there are results."""
    if not results:
        return []
    published = None if model is None else PUBLISHED.get(name, {}).get(model)
    cells = [_count(results[0]["test"]["parameters"]), _published(published)]
    for head, column in columns.items():
        values = [column(result) for result in results]
        if head == "learning rate":
            cells.append(Cell(values[0], "–" if values[0] is None else f"{values[0]:g}"))
        elif head == "training":
            known = [v for v in values if v is not None]
            mean = statistics.fmean(known) if known else None
            cells.append(Cell(mean, "–" if mean is None else _time(mean)))
        elif head == "samples":
            known = [v for v in values if v is not None]
            mean = statistics.fmean(known) if known else None
            cells.append(Cell(mean, "–" if mean is None else f"{mean:,.0f}"))
        elif head == "equivariance error":
            worst = max((v for v in values if v is not None), default=None)
            cells.append(Cell(worst, "–" if worst is None else f"{worst:.0e}"))
        else:
            cells.append(_cell(values))
    return [(label, cells)]


def _trivial_rows(
    results: Results, data: Data, which: dict[str, str], columns: dict[str, Column]
) -> list[tuple[str, list[Cell]]]:
    """The forecasts that learn nothing, from any result on the same windows."""
    models = [*BASELINES, *MODELS]
    first = next((r for model in models for r in results.seeds(data, model)), None)
    rows = []
    for key, label in which.items() if first is not None else ():
        assert first is not None
        found = first["test"][key]
        known = {
            "position MSE": found["mean"],
            "median": found["median"],
            "p90": found["p90"],
            "velocity MSE": found["velocity_mse"]["mean"],
        }
        cells = [Cell(known.get(head), number(known.get(head))) for head in columns]
        rows.append((label, [_count(0), *_blank(1), *cells]))
    return rows


def _notes(results: Results, data: Data) -> list[str]:
    """Seeds and what was seen of the data: whoever saw little is undertrained."""
    seen = {}
    for model in BASELINES:
        for result in results.seeds(data, model)[:1]:
            windows = result["settings"]["task"]["counts"][0]
            seen[MODELS[model].label] = result["training"]["samples"] / windows
    if not seen:
        return []
    seeds = max(len(results.seeds(data, model)) for model in BASELINES)
    over = f"Mean ± standard deviation over {seeds} seeds." if seeds > 1 else "One seed."
    passes = ", ".join(f"{label} {number(epochs, 2)}" for label, epochs in seen.items())
    return [f"{over} Passes over the training data: {passes}."]


def _mean_and_median(summaries: list[dict[str, float]]) -> Cell:
    if not summaries:
        return Cell(None, "–")
    own = summaries[0]
    return Cell(own["mean"], f"{number(own['mean'])} ({number(own['median'])})")


def _published(value: float | None) -> Cell:
    """With the digits that the paper printed."""
    return Cell(value, "–" if value is None else f"{value:.3g}")


def _count(value: int) -> Cell:
    return Cell(value, f"{value:,}")


def _blank(count: int) -> list[Cell]:
    return [Cell(None, "–")] * count
