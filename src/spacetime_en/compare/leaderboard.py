"""The leaderboard: which model is best, with what certainty, and at what cost."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from spacetime_en._util.terminal import Terminal
from spacetime_en.compare.candidates import KINDS, Candidate, FitKind
from spacetime_en.compare.judging import Judgement
from spacetime_en.compare.results import Result, read_result
from spacetime_en.compare.table import Cell, Table, number
from spacetime_en.data.windows import Windows
from spacetime_en.intervals import COVERAGE, Groups, mean_intervals

BOARD_HEAD = ("model", "error", "median", "± seeds", "to the best [95 %]", "training")
SUMMARY = ("mean", "median", "p90")
MANY_SKIPPED = 0.1  # fraction of diverged steps above which it is reported


@dataclass(frozen=True)
class Choice:
    """The model chosen by a comparison, from its validation errors alone.

    Args:
        preset: the model with the lowest mean validation error over its seeds, among those for
            which all seeds could be trained, if there are any.
        run: the folder of its run with the lowest validation error, within that of the comparison.
        errors: the mean validation error of every model that was trained.
    """

    preset: str
    run: str
    errors: dict[str, float]


def choose(judgements: Sequence[Judgement], folder: Path) -> Choice | None:
    """Choose among the trained models; None if there are none."""
    errors: dict[str, float] = {}
    whole: set[str] = set()
    runs: dict[str, str] = {}
    for judgement in judgements:
        found = [fit.result(folder) for fit in judgement.fits()]
        fits = [fit for fit in found if fit is not None and _validation_error(fit) is not None]
        if fits:
            preset = judgement.candidate.preset
            if len(fits) == len(found):
                whole.add(preset)
            errors[preset] = statistics.fmean(fit["training"]["val_mse"] for fit in fits)
            runs[preset] = min(fits, key=lambda fit: float(fit["training"]["val_mse"]))["run"]
    if not errors:
        return None
    # (A model that diverges with some seeds would be flattered by the remaining ones.)
    best = min(errors, key=lambda preset: (preset not in whole, errors[preset]))
    return Choice(best, runs[best], errors)


def _validation_error(fit: Result) -> float | None:
    error: float | None = fit["training"].get("val_mse")
    return error


@dataclass(frozen=True)
class Standing:
    """A model's row.

    Args:
        preset, kind: the model.
        validation: its mean validation error.
        error, median, p90, standard_error: position MSE on the test windows: mean, median and 90th
            percentile over the windows, and the standard error of the mean, means over seeds.
        deviation: standard deviation of `error` over seeds; None with one seed.
        velocity: the mean velocity MSE.
        ade, fde: for paths, in units of length; None with one target time.
        behind: `error` minus that of the chosen model; None if that was not tested.
        interval: the confidence interval of `behind`; None for the chosen model, or if unknown.
        seconds: of processor time to search and train, with all seeds.
        seeds: number of trainings.
        rate: the learning rate; None if nothing is trained.
        parameters: number of them.
        forecasts_per_second: on one core.
        symmetry: the largest equivariance error; None if it is not finite.
    """

    preset: str
    kind: FitKind
    validation: float
    error: float
    median: float
    p90: float
    standard_error: float | None
    deviation: float | None
    velocity: float
    ade: float | None
    fde: float | None
    behind: float | None
    interval: tuple[float, float] | None
    seconds: float
    seeds: int
    rate: float | None
    parameters: int
    forecasts_per_second: float
    symmetry: float | None


@dataclass(frozen=True)
class Leaderboard:
    """All models, the lowest test error first.

    Args:
        title: what was compared on what.
        chosen: the preset chosen by validation error, which is called the best.
        rows: the models.
        groups: the independent units of the intervals, in words.
        reasons: why other presets are missing.
        symmetries: what the data's symmetries imply for options, in sentences.
        remarks: what rows do not show about their trainings, in sentences.
    """

    title: str
    chosen: str
    rows: list[Standing]
    groups: str
    reasons: dict[str, str] = field(default_factory=dict)
    symmetries: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def best(self) -> Standing | None:
        """The row of the chosen model; None if it could not be tested."""
        return next((row for row in self.rows if row.preset == self.chosen), None)

    @property
    def equals(self) -> list[Standing]:
        """The best model, and all that are no worse within their intervals."""
        return [
            row
            for row in self.rows
            if row.preset == self.chosen or (row.interval is not None and row.interval[0] <= 0)
        ]

    @property
    def cheapest(self) -> Standing | None:
        """The one among these that is cheapest to fit, and then to forecast with."""
        return min(
            self.equals,
            key=lambda row: (KINDS.index(row.kind), -row.forecasts_per_second),
            default=None,
        )

    def words(self) -> list[str]:
        """The conclusions from the table, in sentences."""
        best = self.best
        if best is None:
            return [
                f"Best, by validation error: {self.chosen}, which could not be tested; no other is "
                "chosen for that reason."
            ]
        said = [
            f"Best, by validation error: {best.preset} (test error {number(best.error)}; "
            f"validation {number(best.validation)})."
        ]
        others = [row for row in self.rows if row is not best]
        unknown = [row.preset for row in others if row.interval is None]
        lower = [row.preset for row in others if row.interval is not None and row.interval[1] < 0]
        equal = [row.preset for row in self.equals if row is not best and row.preset not in lower]
        if lower:
            it = "it" if len(lower) == 1 else "them"
            said.append(
                f"Lower on the test windows, though validation did not choose {it}: "
                f"{', '.join(lower)}."
            )
        if equal:
            said.append(f"No worse, within the interval: {', '.join(equal)}.")
        if unknown:
            said.append(
                f"Whether these are worse is not known, with {self.groups}: {', '.join(unknown)}."
            )
        if others and not (lower or equal or unknown):
            said.append(f"All others are worse, beyond their {COVERAGE:.0%} intervals.")
        cheap = self.cheapest
        if cheap is None or not (lower or equal):
            return said
        cost = {
            "trivial": "nothing to train",
            "solved": "solved, not trained",
            "trained": f"{cheap.forecasts_per_second:,.0f} forecasts a second",
        }[cheap.kind]
        return [*said, f"The cheapest of these: {cheap.preset} ({cost})."]

    def notes(self) -> list[str]:
        """The meaning of the columns."""
        known = any(row.interval is not None for row in self.rows)
        drawn = f", and its {COVERAGE:.0%} interval, a paired bootstrap over {self.groups}"
        interval = drawn if known else ""
        return [
            "Error: position MSE per coordinate on test windows, the mean over windows and seeds; "
            "± is the standard deviation over seeds.",
            f"To the best: the difference relative to the best's error{interval}.",
            "Training: processor time, with the search and all seeds.",
            *self.remarks,
        ]

    def missing(self) -> list[str]:
        """Why presets, or some seeds of listed ones, are missing."""
        shown = {row.preset for row in self.rows}
        return [
            f"{preset}: {reason.rstrip('.')}." if preset in shown else left_out(preset, reason)
            for preset, reason in self.reasons.items()
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "title": self.title,
            "best": self.chosen,
            "no_worse": [row.preset for row in self.equals],
            "cheapest": None if self.cheapest is None else self.cheapest.preset,
            "words": self.words(),
            "rows": [asdict(row) for row in self.rows],
            "groups": self.groups,
            "left_out": self.reasons,
            "symmetries": list(self.symmetries),
            "remarks": list(self.remarks),
        }

    def print(self, terminal: Terminal) -> None:
        """Print the leaderboard, within 80 columns, and its conclusions."""
        best = self.best
        rows = [
            [
                row.preset,
                *(_narrow(value) for value in (row.error, row.median, row.deviation)),
                _behind(row, best),
                duration(row.seconds),
            ]
            for row in self.rows
        ]
        terminal.table(BOARD_HEAD, rows, self.title)
        for note in self.notes():
            terminal.print(note)
        for sentence in self.missing():
            terminal.print(sentence)
        for sentence in self.words():
            terminal.say(sentence)

    def table(self) -> Table:
        """All columns, for the report."""
        best = self.best
        columns: dict[str, Callable[[Standing], Cell]] = {
            "error": lambda r: Cell(r.error, number(r.error)),
            "median": lambda r: Cell(r.median, number(r.median)),
            "p90": lambda r: Cell(r.p90, number(r.p90)),
            "± seeds": lambda r: Cell(r.deviation, number(r.deviation, 2)),
            "to the best [95 %]": lambda r: Cell(r.behind, _behind(r, best)),
            "velocity": lambda r: Cell(r.velocity, number(r.velocity)),
            "ADE": lambda r: Cell(r.ade, number(r.ade)),
            "FDE": lambda r: Cell(r.fde, number(r.fde)),
            "validation": lambda r: Cell(r.validation, number(r.validation)),
            "training": lambda r: Cell(r.seconds, duration(r.seconds)),
            "learning rate": lambda r: Cell(r.rate, number(r.rate)),
            "parameters": lambda r: Cell(r.parameters, f"{r.parameters:,}"),
            "forecasts/s": lambda r: Cell(r.forecasts_per_second, f"{r.forecasts_per_second:,.0f}"),
            "equivariance error": lambda r: Cell(
                r.symmetry, "∞" if r.symmetry is None else f"{r.symmetry:.0e}"
            ),
        }
        if all(row.ade is None for row in self.rows):
            del columns["ADE"], columns["FDE"]
        rows = [(row.preset, [make(row) for make in columns.values()]) for row in self.rows]
        notes = [*self.notes(), *self.symmetries, *self.missing()]
        return Table("leaderboard", "Leaderboard", list(columns), rows, notes)


def make_leaderboard(
    title: str,
    judgements: Sequence[Judgement],
    choice: Choice,
    groups: Groups,
    folder: Path,
    reasons: Mapping[str, str],
) -> Leaderboard:
    """The leaderboard of a comparison whose models have been judged.

    Args:
        title: what was compared on what.
        judgements: those without a result are left out; without that of the chosen model, there
            are no differences to it.
        choice: the chosen model.
        groups: of the test windows.
        folder: of the comparison.
        reasons: why other presets are missing.
    """
    found = {j.candidate.preset: (j, j.result(folder)) for j in judgements}
    reasons, tested = dict(reasons), {}
    for preset, (judgement, result) in found.items():
        if preset not in choice.errors:
            reasons.setdefault(preset, "its validation error is not known.")
        elif result is None:
            reasons.setdefault(preset, "its test has no result.")
        else:
            tested[preset] = judgement, result
    behind = differences_to(choice.preset, [result for _, result in tested.values()], groups)
    rows = [
        _standing(
            judgement.candidate, result, choice, behind.get(preset), _costs(judgement, folder)
        )
        for preset, (judgement, result) in tested.items()
    ]
    rows.sort(key=lambda row: row.error)
    remarks = [said for judgement, _ in tested.values() for said in _remarks(judgement, folder)]
    return Leaderboard(
        title, choice.preset, rows, groups.describe(), reasons, remarks=tuple(remarks)
    )


def groups_of(windows: Windows) -> Groups:
    """The windows of each recording, or blocks of neighbouring ones."""
    runs, frames = windows.locate()
    steps = windows.trajectories.steps[frames]
    return Groups.of(runs, steps[:, 0], int(np.ptp(steps, axis=1).max()) + 1)


@dataclass(frozen=True)
class Difference:
    """A model's mean error minus another's, and its confidence interval."""

    mean: float
    interval: tuple[float, float] | None


def differences_to(preset: str, results: Sequence[Result], groups: Groups) -> dict[str, Difference]:
    """The difference of each model to one of them, by name; none if that has no result.

    Args:
        preset: the name of that one.
        results: of the tests.
        groups: of the test windows.
    """
    errors = {result["preset"]: _by_window(result) for result in results}
    if preset not in errors:
        return {}
    differences = np.stack(list(errors.values())) - errors[preset]
    intervals = mean_intervals(differences, groups)
    return {
        name: Difference(float(difference.mean()), None if name == preset else interval)
        for name, difference, interval in zip(errors, differences, intervals, strict=True)
    }


def left_out(preset: str, reason: str) -> str:
    """Why a preset has no row, in a sentence."""
    return f"Left out: {preset}: {reason.rstrip('.')}."


def _remarks(judgement: Judgement, folder: Path) -> list[str]:
    """What users should know about a model's trainings that its row does not show."""
    preset, said = judgement.candidate.preset, []
    fits = [result for fit in judgement.fits() if (result := fit.result(folder)) is not None]
    trainings = [fit["training"] for fit in fits]
    steps, skipped = (sum(t.get(key, 0) for t in trainings) for key in ("steps", "skipped"))
    if skipped and skipped >= MANY_SKIPPED * steps:
        said.append(
            f"{preset}: {skipped / steps:.0%} of its steps diverged and were skipped; a lower "
            "learning rate may do better."
        )
    if bases := [t["only_base"] for t in trainings if t.get("only_base")]:
        some = "" if len(bases) == len(fits) else f"with {len(bases)} of {len(fits)} seeds "
        said.append(
            f"{preset}: {some}its network added nothing to its base ({bases[0]}), whose forecasts "
            "it makes; more data or more time may change that."
        )
    return said


def _standing(
    candidate: Candidate,
    result: Result,
    choice: Choice,
    behind: Difference | None,
    costs: dict[str, Any],
) -> Standing:
    seeds = result["seeds"]
    position = {key: _mean([seed["position_mse"][key] for seed in seeds]) for key in SUMMARY}
    means = [seed["position_mse"]["mean"] for seed in seeds]
    certain = [e for seed in seeds if (e := seed["position_mse"].get("standard_error")) is not None]
    ade, fde = (
        _mean([seed[key] for seed in seeds]) if seeds[0].get(key) is not None else None
        for key in ("ade", "fde")
    )
    asymmetries = seeds[0]["equivariance_error"].values()
    return Standing(
        preset=candidate.preset,
        kind=candidate.kind,
        validation=choice.errors[candidate.preset],
        error=position["mean"],
        median=position["median"],
        p90=position["p90"],
        standard_error=_mean(certain) if certain else None,  # (a single window has none)
        deviation=statistics.stdev(means) if len(means) > 1 else None,
        velocity=_mean([seed["velocity_mse"]["mean"] for seed in seeds]),
        ade=ade,
        fde=fde,
        behind=None if behind is None else behind.mean,
        interval=None if behind is None else behind.interval,
        seeds=len(seeds),
        parameters=seeds[0]["parameters"],
        forecasts_per_second=_mean([seed["forecasts_per_second"] for seed in seeds]),
        symmetry=None if None in asymmetries else max(asymmetries),
        **costs,
    )


def _by_window(result: Result) -> Any:
    """The mean error over seeds of each window, (W,)."""
    return np.mean([seed["position"] for seed in result["seeds"]], axis=0)


def _costs(judgement: Judgement, folder: Path) -> dict[str, Any]:
    """The processor time of all trainings of a model, and its learning rate."""
    trained = judgement.candidate.kind == "trained"
    names = [name for fit in judgement.fits() for name in (*fit.needs, fit.name)]
    results = [read_result(folder, name) for name in dict.fromkeys(names)]
    seconds = sum(result["seconds"] for result in results if result is not None)
    rates = [r["settings"]["training"]["lr"] for r in results if r is not None and "settings" in r]
    return {
        "seconds": 0.0 if judgement.candidate.kind == "trivial" else seconds,
        "rate": rates[0] if trained and rates else None,
    }


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


def _behind(row: Standing, best: Standing | None) -> str:
    """The difference to the best, as a percentage of its error or, if many times it, a factor."""
    if best is None or row is best or best.error == 0 or row.behind is None:
        return "–"
    shares = [value / best.error for value in (row.behind, *(row.interval or ()))]
    if max(map(abs, shares)) < 10:
        text, *ends = [
            f"{100 * share:+.0f}" if abs(share) >= 0.1 else f"{100 * share:+.1f}"
            for share in shares
        ]
        text += " %"
    else:
        text, *ends = [_narrow(1 + share, 2) for share in shares]
        text = f"×{text}"
    return f"{text} [{', '.join(ends) or 'not known'}]"


def _narrow(value: float | None, digits: int = 3) -> str:
    """Like :func:`number`, with an exponent from ten thousand on: 1.23e4."""
    if value is None or not abs(value) >= 1e4:
        return number(value, digits)
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def duration(seconds: float) -> str:
    """Seconds or minutes, rounded."""
    return f"{seconds / 60:.1f} min" if seconds >= 100 else f"{seconds:.3g} s"
