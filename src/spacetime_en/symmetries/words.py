"""Print a symmetry report as a table and sentences, for 80 columns."""

from __future__ import annotations

import textwrap

from spacetime_en._util.terminal import Terminal
from spacetime_en.symmetries.algebra import Algebra
from spacetime_en.symmetries.study import LEVEL, SLIGHT, Finding, SymmetryReport


def print_report(report: SymmetryReport, terminal: Terminal) -> None:
    """Print one line for each symmetry, what was not tested, the algebra, and the advice."""
    terminal.table(
        ("symmetry", "verdict", "score", "95 %", "p"),
        [_row(finding) for finding in report.findings],
        title=f"{report.task}: {report.windows:,} windows, {report.groups}",
    )
    explained = max(0.0, report.explained)  # (held out it may be less than nothing)
    said = [
        f"Score: how far what breaks a symmetry moves a forecast, beside the way that nodes leave "
        f"the straight line, of which {explained:.0%} of the square are explained. "
        f"False alarms: {LEVEL:.0%} of data sets (Holm).",
        *(
            [f"Unclear: significant, but perhaps below {SLIGHT:.0%}, as the drift of samples is."]
            if any(f.verdict == "unclear" for f in report.findings)
            else []
        ),
        *(f"{f.name}: untested, {f.words}." for f in report.findings if f.verdict == "untested"),
        _generators(report.algebra),
        *report.advice,
    ]
    for line in said:
        terminal.say(textwrap.fill(line, 80, subsequent_indent="  "))


def _generators(algebra: Algebra | None) -> str:
    if algebra is None:
        return "Generators: none, as nothing is explained; two halves of the data agree on no law."
    return f"Generators that a fitted law commutes with: {algebra.words}."


def _row(finding: Finding) -> tuple[str, ...]:
    if finding.score is None or finding.p is None:
        return (finding.name, finding.verdict, "", "", "")
    score, low, high = (f"{100 * s:.2g}" for s in finding.score)
    p = f"{finding.p:.2g}" if finding.p > 1 / 4_000 else "<0.0003"
    return (finding.name, finding.verdict, f"{score} %", f"{low} to {high}", p)
