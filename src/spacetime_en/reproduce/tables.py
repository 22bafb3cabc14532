"""Tables of experiment results, as JSON and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spacetime_en.compare.results import Result
from spacetime_en.compare.table import Cell, Row, Table, number
from spacetime_en.reproduce.columns import CLEAN_ERRORS, COST, ERRORS, VALIDATION, Column
from spacetime_en.reproduce.experiment import checked_result
from spacetime_en.reproduce.plan import (
    ABLATION,
    AUDITED,
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
NOISY_TRIVIAL = TRIVIAL | {"least_squares_line": "least squares line"}
# By posterior sampling, N = 5, L = 10, H = 10,000, against the clean target:
NOISY_FLOOR = 9.4  # python benchmarks/noise_floor.py --samples 64: 9.44 +- 0.18
CHAOS = (
    "The exact force with half the step already differs by 2.2 in the mean and 0.89 in the median "
    "at N = 20: chaos, below which no model can be expected to go."
)


@dataclass(frozen=True)
class Results:
    """The results in a folder, by experiment; those of another scale are refused."""

    folder: Path
    scale: Scale
    _cache: dict[Experiment, Result | None] = field(default_factory=dict, init=False)

    def of(self, experiments: Sequence[Experiment]) -> list[Result]:
        """The results of some experiments, without those that are not finished."""
        results = (self._read(experiment) for experiment in experiments)
        return [result for result in results if result is not None]

    def _read(self, experiment: Experiment) -> Result | None:
        if experiment not in self._cache:  # several tables and figures ask for it
            self._cache[experiment] = checked_result(self.folder, experiment, self.scale)
        return self._cache[experiment]

    def seeds(self, data: Data, model: str) -> list[Result]:
        """The results of a model on a task, one per seed."""
        return self.of([Experiment(data, model, seed) for seed in self.scale.seeds])

    def tested(self, data: Data, model: str) -> Result | None:
        """The result of the first seed, if it was tested."""
        results = self.of([Experiment(data, model, self.scale.seeds[0])])
        return results[0] if results and "test" in results[0] else None


def make_tables(results: Results) -> list[Table]:
    """Every table that has at least one result."""
    special = {"horizons": horizons, "ablation": ablation, "noisy": noisy}
    tables = [
        special[name](results) if name in special else compared(name, results) for name in TABLES
    ]
    return [table for table in (*tables, audit(results)) if table.rows]


def compared(name: str, results: Results) -> Table:
    """All models on one task, beside the published errors."""
    data = table(name, results.scale)[0].data
    columns = (*ERRORS, *COST)
    rows = _rows(results, data, BASELINES, columns, name)
    for experiment in table(name, results.scale):
        if experiment.rate is not None:
            label = f"{MODELS[experiment.model].label}, the paper's rate"
            rows += _row(label, results.of([experiment]), columns, None)
    rows += _trivial_rows(results, data, BASELINES, columns, TRIVIAL)
    notes = _notes(results, data, BASELINES)
    notes += [CHAOS] if rows and data.nodes > 5 else []
    return Table(name, TITLES[name], _heads(columns), rows, notes)


def ablation(results: Results) -> Table:
    """SET with one thing changed at a time."""
    data, columns = Data(), (VALIDATION, *ERRORS, *COST)
    reference = ERRORS[0].of(results.seeds(data, "set")).value
    rows = []
    for model in ABLATION:
        seeds = results.seeds(data, model)
        mean = ERRORS[0].of(seeds).value
        ratio = mean / reference if mean is not None and reference else None
        last = Cell() if ratio is None else Cell(ratio, f"{ratio:.2f}×")
        label = MODELS[model].label + ("" if MODELS[model].trains else " (untrained)")
        rows += [
            (label, [*cells, last])
            for label, cells in _row(label, seeds, columns, PUBLISHED["ablation"].get(model))
        ]
    trivial = _trivial_rows(results, data, ABLATION, columns, TRIVIAL)
    rows += [(label, [*cells, Cell()]) for label, cells in trivial]
    notes = _notes(results, data, ABLATION)
    if rows:
        notes.append(
            "Without spatial attention no parameter influences the forecast: there is nothing to "
            "train, and the row is of the model as it is built."
        )
    return Table("ablation", TITLES["ablation"], [*_heads(columns), "ratio to SET"], rows, notes)


def noisy(results: Results) -> Table:
    """Errors against the noisy and against the clean targets."""
    data, columns = Data(noisy=True), (*CLEAN_ERRORS, *COST)
    rows = _rows(results, data, BASELINES, columns, "noisy")
    rows += _trivial_rows(results, data, BASELINES, columns, NOISY_TRIVIAL)
    notes = _notes(results, data, BASELINES)
    if rows:
        floors = {"noisy target: MSE": NOISY_FLOOR + 0.5, "clean target: MSE": NOISY_FLOOR}
        values = [floors.get(head) for head in _heads(columns)]
        cells = [Cell(value, number(value)) for value in values]
        rows.append(("floor, about", cells))
        notes.append(
            f"No model can do better than about {NOISY_FLOOR} against the clean target (posterior "
            "sampling, N = 5, L = 10), and 0.5 more, the variance of the noise, against the noisy "
            "one. The models are trained on noisy targets, as in the paper."
        )
    return Table("noisy", TITLES["noisy"], _heads(columns), rows, notes)


def horizons(results: Results) -> Table:
    """Mean and median error of each model, retrained for each horizon."""
    by_model = {
        model: [results.tested(Data(steps_ahead=h), model) for h in HORIZONS] for model in BASELINES
    }
    rows: list[Row] = [
        (MODELS[model].label, [_mean_and_median(result, "model") for result in tested])
        for model, tested in by_model.items()
        if any(tested)
    ]
    for who, label in TRIVIAL.items() if rows else ():  # the same whatever model they stand beside
        at_each = [next(filter(None, same), None) for same in zip(*by_model.values(), strict=True)]
        rows.append((label, [_mean_and_median(result, who) for result in at_each]))
    heads = [f"H = {h:,}" for h in HORIZONS]
    notes = ["Position MSE: mean (median). One seed; each model is trained anew for each horizon."]
    return Table("horizons", TITLES["horizons"], heads, rows, notes if rows else [])


def audit(results: Results) -> Table:
    """Errors on zero targets, beside the published ones."""
    mean = ERRORS[0]
    rows: list[Row] = []
    heads: list[str] = []
    for model in BASELINES:
        zero, noisy_zero = (
            [result for result in [results.tested(data, model)] if result is not None]
            for data in (Data(zero=True), Data(noisy=True, zero=True))
        )
        if not zero and not noisy_zero:
            continue
        shifts = (zero or noisy_zero)[0]["test"]["equivariance_error"]["translation"] or math.inf
        bound = zero[0]["centroid_variance"] if zero and shifts < 1e-3 else None
        cells = {
            "published": _published(PUBLISHED["baselines"][model]),
            "zero targets": mean.of(zero),
            "bound": Cell(bound, number(bound)),
            "true targets": mean.of(results.seeds(Data(), model)),
            "published, noisy": _published(PUBLISHED["noisy"][model]),
            "zero targets with noise": mean.of(noisy_zero),
        }
        heads = list(cells)
        rows.append((MODELS[model].label, list(cells.values())))
    notes = [
        "AUDIT: the columns of zero targets are made with `--targets zero`, one seed each, and "
        "measure how well a model outputs 0.",
        "The bound is the variance of the inputs' centroid, which no translation-equivariant model "
        "can go below on zero targets; noise of variance 0.5 around zero cannot be forecast "
        "better than 0.5.",
    ]
    return Table(AUDITED, TITLES[AUDITED], heads, rows, notes if rows else [])


# --- parts of tables ------------------------------------------------------------------------------


def _heads(columns: Sequence[Column]) -> list[str]:
    return ["parameters", "published", "seeds", *(column.head for column in columns)]


def _rows(
    results: Results, data: Data, models: Sequence[str], columns: Sequence[Column], name: str
) -> list[Row]:
    published, rows = PUBLISHED.get(name, {}), []
    for model in models:
        label, seeds = MODELS[model].label, results.seeds(data, model)
        rows += _row(label, seeds, columns, published.get(model))
    return rows


def _row(
    label: str, results: Sequence[Result], columns: Sequence[Column], published: str | None
) -> list[Row]:
    """One row, or none if there are no results."""
    if not results:
        return []
    tested = [result for result in results if "test" in result]
    lost = len(results) - len(tested)
    seeds = Cell(len(results), f"{len(results)}" + (f", {lost} diverged" if lost else ""))
    count = _count(tested[0]["test"]["parameters"]) if tested else Cell()
    return [(label, [count, _published(published), seeds, *(c.of(results) for c in columns)])]


def _trivial_rows(
    results: Results,
    data: Data,
    models: Sequence[str],
    columns: Sequence[Column],
    which: dict[str, str],
) -> list[Row]:
    """The trivial forecasts, from any result on the same windows."""
    candidates = (result for model in models for result in results.seeds(data, model))
    first = next((result for result in candidates if "test" in result), None)
    if first is None:
        return []
    return [
        (label, [_count(0), Cell(), Cell(), *(column.of([first], who) for column in columns)])
        for who, label in which.items()
    ]


def _notes(results: Results, data: Data, models: Sequence[str]) -> list[str]:
    """How often each model has seen the data (few passes: undertrained), and what diverged."""
    seen = []
    for model in models:
        for result in results.seeds(data, model)[:1]:
            if samples := result.get("training", {}).get("samples"):
                epochs = samples / result["settings"]["task"]["counts"][0]
                seen.append(f"{MODELS[model].label} {number(epochs, 2)}")
    if not seen:
        return []
    passes = ", ".join(seen)
    notes = [f"± is the standard deviation over seeds. Passes over the training data: {passes}."]
    diverged = []
    for model in models:
        trainings = [result.get("training", {}) for result in results.seeds(data, model)]
        if count := sum(len(training.get("diverged_at", ())) for training in trainings):
            diverged.append(f"{MODELS[model].label} {count}")
    if diverged:
        counts = ", ".join(diverged)
        notes.append(f"Trainings that diverged, and began again at the next best rate: {counts}.")
    return notes


def _mean_and_median(result: Result | None, who: str) -> Cell:
    if result is None:
        return Cell()
    mean, median = (column.of([result], who) for column in ERRORS[:2])
    return Cell(mean.value, f"{mean.text} ({median.text})")


def _published(text: str | None) -> Cell:
    return Cell() if text is None else Cell(float(text), text)


def _count(value: int) -> Cell:
    return Cell(value, f"{value:,}")
