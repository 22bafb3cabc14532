"""The paper's experiments, with true targets: ``spacetime reproduce``.

A plan for the engine in ``compare``: ``plan`` lists the experiments, ``experiment`` turns them into
jobs, ``columns``, ``tables``, ``curves``, ``scenes`` and ``figures`` present the results,
``report`` writes them. Imports compare and every subpackage below.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spacetime_en._util.errors import InputError
from spacetime_en.compare.workers import carry_out_all
from spacetime_en.reproduce.experiment import PaperJob
from spacetime_en.reproduce.plan import AUDITABLE, SCALES, TABLES, ScaleName, plan, table


def reproduce(
    tables: Sequence[str] = (),
    *,
    scale: ScaleName = "quick",
    out: Path,
    zero: bool = False,
    workers: int | None = None,
    only: Sequence[str] = (),
) -> None:
    """Run the experiments of some tables, then write the tables, figures and report.

    Args:
        tables: names in ``TABLES``; none for all (with `zero`, for the two that are audited).
        scale: the size of data and training budgets.
        out: folder for all results; finished experiments are not repeated.
        zero: run the audit, with targets that are all zero.
        workers: number of processes, one core (or GPU) each; None for one per core or GPU.
        only: patterns of names of experiments, such as ``n5-h1000--*``; none for all.
    """
    chosen = list(tables) or list(AUDITABLE if zero else TABLES)
    for name in chosen:
        table(name, SCALES[scale], zero)  # rejects unknown names before anything runs
    planned = plan(chosen, SCALES[scale], zero, only)
    jobs = [PaperJob(experiment, SCALES[scale]) for experiment in planned]
    failed = carry_out_all(jobs, out, "reproduction", workers).failed
    from spacetime_en.reproduce.report import write_report  # imports matplotlib

    print(f"written: {write_report(out, SCALES[scale])}")
    if failed:
        first = next(iter(failed))
        raise InputError(f"{len(failed)} experiment(s) failed: {first}: {failed[first]}")
