"""Tables of experiment results, as JSON and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from spacetime_en.compare.results import Result
from spacetime_en.compare.table import Cell, Row, Table, number
from spacetime_en.reproduce.columns import CLEAN_ERRORS, COST, ERRORS, SUMMARIES, VALIDATION, Column
from spacetime_en.reproduce.experiment import checked_result, has_chosen_rate
from spacetime_en.reproduce.plan import (
    ABLATION,
    AUDITED,
    BASELINES,
    BEYOND,
    BEYOND_DATA,
    HORIZONS,
    MODELS,
    NARROW,
    TABLES,
    TITLES,
    Data,
    Experiment,
    H,
    Scale,
    table,
)
from spacetime_en.reproduce.published import PUBLISHED

TRIVIAL = {"last_frame": "last frame", "straight_line": "straight line"}
NOISY_TRIVIAL = TRIVIAL | {"least_squares_line": "least squares line"}
# By posterior sampling, N = 5, L = 10, H = 10,000, against the clean target:
NOISY_FLOOR = 9.4  # python benchmarks/noise_floor.py --samples 64: 9.44 +- 0.18
# By N at H = 10,000: python -m benchmarks.oracle charged, --nodes 20 --windows 500, --nodes 30
# --windows 200.
EQUIVARIANT_FLOORS = {5: "2.21 ± 0.10", 20: "4.02 ± 0.1", 30: "4.95 ± 0.2"}
# Next to the label of a row whose learning rate was chosen by trials on another task.
ELSEWHERE = " †"
ELSEWHERE_NOTE = (
    "† At a learning rate that trials at N = 5, H = 10,000 chose. `spacetime reproduce` makes "
    "trials on the task itself, and trains again where they choose another."
)


@dataclass(frozen=True)
class Results:
    """The results in a folder, by experiment; those of another scale are rejected."""

    folder: Path
    scale: Scale
    _cache: dict[Experiment, Result | None] = field(default_factory=dict, init=False)

    def of(self, experiments: Sequence[Experiment]) -> list[Result]:
        """The results of some experiments, as far as they are finished."""
        results = (self._read(experiment) for experiment in experiments)
        return [result for result in results if result is not None]

    def _read(self, experiment: Experiment) -> Result | None:
        if experiment not in self._cache:  # several tables and figures ask for it
            self._cache[experiment] = checked_result(self.folder, experiment, self.scale)
        return self._cache[experiment]

    def mark(self, data: Data, model: str) -> str:
        """The mark of a model whose learning rate was not chosen on the task itself."""
        for experiment in (Experiment(data, model, seed) for seed in self.scale.seeds):
            result, where = self._read(experiment), (self.folder, experiment, self.scale)
            if result is not None and not has_chosen_rate(result, *where):
                return ELSEWHERE
        return ""

    def seeds(self, data: Data, model: str) -> list[Result]:
        """The results of a model on a task, one per seed."""
        return self.of([Experiment(data, model, seed) for seed in self.scale.seeds])

    def tested(self, data: Data, model: str) -> Result | None:
        """The result of the first seed, if it was tested."""
        results = self.of([Experiment(data, model, self.scale.seeds[0])])
        return results[0] if results and "test" in results[0] else None


def make_tables(results: Results) -> list[Table]:
    """Every table that has at least one result."""
    special = {"ablation": ablation, "noisy": noisy, "beyond": beyond}
    tables = []
    for name in TABLES:
        if name == "horizons":
            tables += [horizons(results), horizons(results, "velocity")]
        else:
            tables.append(special[name](results) if name in special else compared(name, results))
    return [table for table in (*tables, audit(results)) if table.rows]


def compared(name: str, results: Results) -> Table:
    """All models on one task, next to the published errors."""
    planned = table(name, results.scale)
    data, columns = planned[0].data, (*ERRORS, *COST)
    models = list(dict.fromkeys(experiment.model for experiment in planned))
    rows = _rows(results, data, models, columns, name)
    for experiment in planned:
        if experiment.rate is not None:
            label = f"{MODELS[experiment.model].label}, the paper's rate"
            rows += _row(label, results.of([experiment]), columns, None)
    rows += _trivial_rows(results, data, models, columns, TRIVIAL)
    notes = _notes(rows, {MODELS[m].label: results.seeds(data, m) for m in models})
    if rows and data.steps_ahead == H:
        notes.append(
            "No exactly equivariant model can be expected to have less than about "
            f"{EQUIVARIANT_FLOORS[data.nodes]} in the mean: the simulator clips the components of "
            "forces, along axes that such a model does not know."
        )
    return Table(name, TITLES[name], _heads(columns), rows, notes)


def ablation(results: Results) -> Table:
    """SET with one change at a time, at one learning rate for all."""
    data, columns = Data(), (VALIDATION, *ERRORS, *COST)
    planned = table("ablation", results.scale)
    common = {m: results.of([e for e in planned if e.model == m]) for m in ABLATION}
    others = _at_other_rates(results, data)
    rows = []
    for model, seeds in common.items():
        label = MODELS[model].label + ("" if MODELS[model].trains else " (untrained)")
        last, published = _ratio(seeds, common["set"]), PUBLISHED["ablation"].get(model)
        rows += [(row, [*cells, last]) for row, cells in _row(label, seeds, columns, published)]
    for (model, rate), seeds in others.items():
        label, last = (
            f"{MODELS[model].label}, at {rate:g}",
            _ratio(seeds, others.get(("set", rate))),
        )
        rows += [(row, [*cells, last]) for row, cells in _row(label, seeds, columns, None)]
    trivial = _trivial_rows(results, data, ABLATION, columns, TRIVIAL)
    rows += [(label, [*cells, Cell()]) for label, cells in trivial]
    notes = _passes({MODELS[model].label: seeds for model, seeds in common.items()})
    if rows:
        notes.append(
            "Without spatial attention no parameter influences the forecast: there is nothing to "
            "train, and the row is of the model as it is built."
        )
    if others:
        notes.append(
            "The ratio is to SET at the same learning rate, where it has a row. Rows at another "
            "rate than the common one are what did not diverge there, of seeds that began at the "
            "best rate of their trials."
        )
    return Table("ablation", TITLES["ablation"], [*_heads(columns), "ratio to SET"], rows, notes)


def _ratio(results: Sequence[Result], reference: Sequence[Result] | None) -> Cell:
    """The error relative to that of a reference."""
    error, other = (ERRORS[0].of(which or ()).value for which in (results, reference))
    return Cell(error / other, f"{error / other:.2f}×") if error is not None and other else Cell()


def _at_other_rates(results: Results, data: Data) -> dict[tuple[str, float], list[Result]]:
    """Results of the ablation's models at rates other than the common one."""
    found: dict[tuple[str, float], list[Result]] = {}
    if (rate := results.scale.common_rate) is not None:
        for model in ABLATION:
            for result in results.seeds(data, model):
                if result["rate"] not in (rate, None):
                    found.setdefault((model, result["rate"]), []).append(result)
    return found


def beyond(results: Results) -> Table:
    """Our own and others' models next to the paper's on the same windows, task by task."""
    rows: list[Row] = []
    shown: dict[str, list[Result]] = {}
    for data in BEYOND_DATA:
        columns = (*(CLEAN_ERRORS[1:] if data.noisy else ERRORS), *COST)
        made = {model: results.seeds(data, model) for model in BEYOND}
        if not any(made.values()):
            continue
        shown |= {f"{MODELS[m].label} ({data.title})": seeds for m, seeds in made.items()}
        task = Cell(None, data.title)
        for model in (*BEYOND, "set", *NARROW, "egnn"):
            label, seeds = MODELS[model].label, results.seeds(data, model)
            rows += [
                (row, [task, *cells])
                for row, cells in _row(label + results.mark(data, model), seeds, columns, None)
            ]
        rows += [
            (label, [task, *cells])
            for label, cells in _trivial_rows(results, data, list(BEYOND), columns, TRIVIAL)
        ]
    notes = _notes(rows, shown)
    if rows:
        notes.append(
            "Errors on noisy data are against the clean targets. Models beyond the paper train "
            "with the settings of their presets, for the same time and with the same search."
        )
    return Table("beyond", TITLES["beyond"], ["task", *_heads((*ERRORS, *COST))], rows, notes)


def noisy(results: Results) -> Table:
    """Errors against the noisy and against the clean targets."""
    data, columns = Data(noisy=True), (*CLEAN_ERRORS, *COST)
    rows = _rows(results, data, BASELINES, columns, "noisy")
    rows += _trivial_rows(results, data, BASELINES, columns, NOISY_TRIVIAL)
    notes = _notes(rows, {MODELS[m].label: results.seeds(data, m) for m in BASELINES})
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


def horizons(results: Results, of: Literal["position", "velocity"] = "position") -> Table:
    """Mean and median error of each model, retrained for each horizon."""
    tasks = [Data(steps_ahead=h) for h in HORIZONS]
    by_model = {model: [results.tested(data, model) for data in tasks] for model in BASELINES}
    rows: list[Row] = []
    for model, tested in by_model.items():
        if any(tested):
            cells = [
                _summary(result, "model", of, results.mark(data, model))
                for data, result in zip(tasks, tested, strict=True)
            ]
            rows.append((MODELS[model].label, cells))
    for who, label in TRIVIAL.items() if rows else ():  # the same for every model
        at_each = [next(filter(None, same), None) for same in zip(*by_model.values(), strict=True)]
        rows.append((label, [_summary(result, who, of) for result in at_each]))
    heads = [f"H = {h:,}" for h in HORIZONS]
    notes = [
        f"{of.capitalize()} MSE: mean ± standard error over windows, where it is known (median). "
        "One seed; each model is trained anew for each horizon."
    ]
    if any(cell.text.endswith(ELSEWHERE) for _, cells in rows for cell in cells):
        notes.append(ELSEWHERE_NOTE)
    name = "horizons" if of == "position" else "horizons-velocity"
    return Table(name, TITLES[name], heads, rows, notes if rows else [])


def audit(results: Results) -> Table:
    """Errors on zero targets, next to the published ones."""
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
        seeds = results.seeds(data, model)
        label = MODELS[model].label + results.mark(data, model)
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


def _notes(rows: Sequence[Row], trained: Mapping[str, Sequence[Result]]) -> list[str]:
    """The notes common to all tables, from their rows and trainings, by label."""
    notes = [*_passes(trained), *_restarts(trained)]
    if any(label.endswith(ELSEWHERE) for label, _ in rows):
        notes.append(ELSEWHERE_NOTE)
    return notes


def _passes(trained: Mapping[str, Sequence[Result]]) -> list[str]:
    """The number of passes of each model over the data: with few, it is undertrained."""
    seen = []
    for label, results in trained.items():
        for result in results[:1]:
            if samples := result.get("training", {}).get("samples"):
                epochs = samples / result["settings"]["task"]["counts"][0]
                seen.append(f"{label} {number(epochs, 2)}")
    if not seen:
        return []
    passes = ", ".join(seen)
    return [
        "± is the standard deviation over seeds, s.e. the standard error over windows. Passes over "
        f"the training data: {passes}."
    ]


def _restarts(trained: Mapping[str, Sequence[Result]]) -> list[str]:
    """How many trainings diverged and were restarted."""
    diverged = []
    for label, results in trained.items():
        trainings = [result.get("training", {}) for result in results]
        if count := sum(len(training.get("diverged_at", ())) for training in trainings):
            diverged.append(f"{label} {count}")
    if not diverged:
        return []
    counts = ", ".join(diverged)
    return [f"Trainings that diverged, and began again at the next best rate: {counts}."]


def _summary(result: Result | None, who: str, of: str, mark: str = "") -> Cell:
    """Mean, standard error and median in one cell."""
    if result is None:
        return Cell()
    mean, error, median = (column.of([result], who) for column in SUMMARIES[of])
    spread = "" if error.value is None else f" ± {error.text}"
    return Cell(mean.value, f"{mean.text}{spread} ({median.text}){mark}")


def _published(text: str | None) -> Cell:
    return Cell() if text is None else Cell(float(text), text)


def _count(value: int) -> Cell:
    return Cell(value, f"{value:,}")
