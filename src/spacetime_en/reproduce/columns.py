"""The columns of tables: what each reads of a result, and how it prints the numbers of seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from spacetime_en.reproduce.experiment import Result


@dataclass(frozen=True)
class Cell:
    """A number and how it is printed.

    Args:
        value: to sort by; None: there is none.
        text: to print.
    """

    value: float | None = None
    text: str = "–"


def number(value: float | None, digits: int = 3) -> str:
    """Short, and never 0 for what is not: 3.21, 0.0123, 1.2e-07, 12,345."""
    if value is None or math.isnan(value):
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        text = f"{value:.{digits}g}"
        return text if "e" not in text else f"{value:,.0f}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.1e}"


def mean_and_deviation(values: Sequence[float]) -> Cell:
    """Over seeds; infinite if one of them is."""
    mean = statistics.fmean(values)
    if math.isinf(mean):
        return Cell(None, "∞")
    if len(set(values)) == 1:
        return Cell(mean, number(mean))
    return Cell(mean, f"{number(mean)} ± {number(statistics.stdev(values), 2)}")


def _shown(show: Callable[[float], str]) -> Callable[[Sequence[float]], Cell]:
    """The mean over seeds, printed as `show` does."""

    def cell(values: Sequence[float]) -> Cell:
        mean = statistics.fmean(values)
        return Cell(None, "∞") if math.isinf(mean) else Cell(mean, show(mean))

    return cell


def _each(values: Sequence[float]) -> Cell:
    """All that there are, the first of them to sort by."""
    found = sorted(set(values))
    return Cell(found[0], ", ".join(f"{value:g}" for value in found))


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


@dataclass(frozen=True)
class Column:
    """A column: what it reads of a result, and how it sums up several seeds.

    Args:
        head: its name.
        read: the number of a result, for the model (``"model"``) or for a trivial forecast
            (``"last_frame"``, ...); None: there is none.
        cell: the numbers of all seeds as one cell.
    """

    head: str
    read: Callable[[Result, str], float | None]
    cell: Callable[[Sequence[float]], Cell] = mean_and_deviation

    def of(self, results: Sequence[Result], who: str = "model") -> Cell:
        """The cell of some results; those that diverged have none."""
        values = [self.read(result, who) for result in results if "test" in result]
        known = [value for value in values if value is not None]
        return self.cell(known) if known else Cell()


def _error(head: str, kind: str, key: str, where: str = "test") -> Column:
    def read(result: Result, who: str) -> float | None:
        found = result[where]
        own = found if where == "test" and who == "model" else found[who]
        value = own[kind][key]
        return math.inf if value is None else float(value)  # JSON has no infinity

    return Column(head, read)


def _cost(head: str, of: Callable[[Result], float | None], cell: Any) -> Column:
    return Column(head, lambda result, who: of(result) if who == "model" else None, cell)


def _training(key: str) -> Callable[[Result], float | None]:
    return lambda result: result.get("training", {}).get(key)


def _equivariance_error(result: Result) -> float:
    found = result["test"]["equivariance_error"].values()
    return max(math.inf if error is None else error for error in found)


ERRORS = (
    _error("position MSE", "position_mse", "mean"),
    _error("median", "position_mse", "median"),
    _error("p90", "position_mse", "p90"),
    _error("velocity MSE", "velocity_mse", "mean"),
)
CLEAN_ERRORS = (
    _error("noisy target: MSE", "position_mse", "mean"),
    _error("clean target: MSE", "position_mse", "mean", "clean"),
    _error("median", "position_mse", "median", "clean"),
    _error("p90", "position_mse", "p90", "clean"),
    _error("velocity MSE", "velocity_mse", "mean", "clean"),
)
COST = (
    _cost("learning rate", lambda result: result["rate"], _each),
    _cost("training", _training("seconds"), _shown(_minutes)),
    _cost("samples", _training("samples"), _shown("{:,.0f}".format)),
    _cost("equivariance error", _equivariance_error, _shown("{:.0e}".format)),
)
VALIDATION = _cost("validation MSE", _training("val_mse"), mean_and_deviation)
