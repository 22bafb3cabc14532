"""The paper's experiments, with true targets: ``spacetime reproduce``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spacetime_en._util.errors import InputError
from spacetime_en.reproduce.plan import AUDITABLE, SCALES, TABLES, ScaleName, plan, table
from spacetime_en.reproduce.report import write_report
from spacetime_en.reproduce.workers import carry_out_all


def reproduce(
    tables: Sequence[str] = (),
    *,
    scale: ScaleName = "quick",
    out: Path,
    zero: bool = False,
    workers: int | None = None,
) -> None:
    """Train and test what the tables need, then write tables, figures and the report.

    Args:
        tables: of ``TABLES``; none: all (with `zero`, the two that the audit is about).
        scale: how much is spent.
        out: folder for everything; what is there already is not made again.
        zero: the audit, with targets that are all zero.
        workers: processes, one core (or GPU) each; None: as many as there are.
    """
    chosen = list(tables) or list(AUDITABLE if zero else TABLES)
    for name in chosen:
        table(name, SCALES[scale], zero)  # or say what is wrong
    failed = carry_out_all(plan(chosen, SCALES[scale], zero), SCALES[scale], out, workers)
    print(f"written: {write_report(out, SCALES[scale])}")
    if failed:
        raise InputError(f"{len(failed)} experiment(s) failed: {failed[0]}")
