"""Table columns: which number of a result each shows, and how seeds are aggregated."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from spacetime_en.compare.results import Result
from spacetime_en.compare.table import Cell, number


def mean_and_deviation(values: Sequence[float]) -> Cell:
    """Mean and standard deviation over seeds; infinite if any value is."""
    cell = _mean(number)(values)
    if cell.value is None or len(set(values)) == 1:
        return cell
    return Cell(cell.value, f"{cell.text} ± {number(statistics.stdev(values), 2)}")


def _mean(show: Callable[[float], str]) -> Callable[[Sequence[float]], Cell]:
    """The mean over seeds, formatted by `show`."""

    def cell(values: Sequence[float]) -> Cell:
        mean = statistics.fmean(values)
        return Cell(None, "∞") if math.isinf(mean) else Cell(mean, show(mean))

    return cell


def _each(values: Sequence[float]) -> Cell:
    """All distinct values; cells are sorted by the smallest."""
    distinct = sorted(set(values))
    return Cell(distinct[0], ", ".join(f"{value:g}" for value in distinct))


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


@dataclass(frozen=True)
class Column:
    """A column: the number it takes from a result, and how it aggregates seeds.

    Args:
        head: the column's heading.
        read: takes a number from a result, for the model (``"model"``) or for a trivial forecast
            (``"last_frame"``, ...); None if there is none.
        cell: turns the numbers of all seeds into one cell.
    """

    head: str
    read: Callable[[Result, str], float | None]
    cell: Callable[[Sequence[float]], Cell] = mean_and_deviation

    def of(self, results: Sequence[Result], who: str = "model") -> Cell:
        """The cell for the results of several seeds, without those that diverged."""
        numbers = [self.read(result, who) for result in results if "test" in result]
        values = [value for value in numbers if value is not None]
        return self.cell(values) if values else Cell()


def _error(
    head: str, kind: str, key: str, where: str, cell: Callable[..., Cell] = mean_and_deviation
) -> Column:
    def read(result: Result, who: str) -> float | None:
        report = result[where]
        errors = (report if where == "test" and who == "model" else report[who])[kind]
        if key not in errors:  # (results from before standard errors were stored)
            return None
        value = errors[key]
        return math.inf if value is None else float(value)  # JSON has no infinity

    return Column(head, read, cell)


def _cost(head: str, of: Callable[[Result], float | None], cell: Any) -> Column:
    return Column(head, lambda result, who: of(result) if who == "model" else None, cell)


def _training(key: str) -> Callable[[Result], float | None]:
    return lambda result: result.get("training", {}).get(key)


def _equivariance_error(result: Result) -> float:
    errors = result["test"]["equivariance_error"].values()
    return max(math.inf if error is None else error for error in errors)


def _errors(where: str, head: str) -> tuple[Column, ...]:
    """Means with their standard errors over windows, medians and 90th percentiles."""
    of_windows = _mean(lambda value: number(value, 2))
    return (
        _error(head, "position_mse", "mean", where),
        _error("position s.e.", "position_mse", "standard_error", where, of_windows),
        _error("median", "position_mse", "median", where),
        _error("p90", "position_mse", "p90", where),
        _error("velocity MSE", "velocity_mse", "mean", where),
        _error("velocity s.e.", "velocity_mse", "standard_error", where, of_windows),
    )


ERRORS = _errors("test", "position MSE")
CLEAN_ERRORS = (
    _error("noisy target: MSE", "position_mse", "mean", "test"),
    *_errors("clean", "clean target: MSE"),
)
# Mean, standard error and median of each kind of error.
SUMMARIES = {
    "position": ERRORS[:3],
    "velocity": (*ERRORS[4:], _error("", "velocity_mse", "median", "test")),
}
COST = (
    _cost("learning rate", lambda result: result["rate"], _each),
    _cost("training", _training("seconds"), _mean(_minutes)),
    _cost("samples", _training("samples"), _mean("{:,.0f}".format)),
    _cost("equivariance error", _equivariance_error, _mean("{:.0e}".format)),
)
VALIDATION = _cost("validation MSE", _training("val_mse"), mean_and_deviation)
