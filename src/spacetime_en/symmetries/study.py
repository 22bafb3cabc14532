"""All questions about one task, in an order in which answers help to ask the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from spacetime_en._util.errors import InputError
from spacetime_en.data.task import Task
from spacetime_en.symmetries import questions, transformed
from spacetime_en.symmetries.algebra import Algebra, algebra_of
from spacetime_en.symmetries.axis import axes_of, mirrors_of
from spacetime_en.symmetries.centre import centre_of
from spacetime_en.symmetries.partial import Evidence
from spacetime_en.symmetries.poses import same_pose
from spacetime_en.symmetries.rows import (
    MOST_ROWS,
    VELOCITY,
    Array,
    Rows,
    rows_of_windows,
    sample,
    typical_distance,
)

LEVEL = 0.05  # of a false alarm about any symmetry of a data set (Holm 1979)
SLIGHT = 0.02  # a change of forecasts, relative to the residual, that hardly matters
# Windows are not spread over these groups by chance: late, large or fast ones look unlike others.
# What the forecaster misses then differs, too: a change that may be below SLIGHT is no evidence.
DRIFTING = ("time shift", "time reversal", "scale", "boost")
# Nor are the places of windows spread evenly about the centre of a field, which is estimated.
DRIFTING_IN_A_FIELD = (*DRIFTING, "rotation", "reflection")
_ROUNDING = 1e-6  # of a position in single precision, with a margin
FEWEST_WINDOWS, FEWEST_BLOCKS = 100, 12
Verdict = Literal["holds", "unclear", "slightly broken", "broken", "untested"]
OF_SPACE = ("translation", "rotation", "reflection", "permutation")
ASKED_ABOUT = (*OF_SPACE, "time shift", "time reversal", "scale", "boost")


@dataclass(frozen=True)
class Finding:
    """What is known about one symmetry.

    Args:
        name: one of ``ASKED_ABOUT``.
        verdict: in a word or two.
        score: by how much its violation changes a forecast, relative to the residual from the
            straight line, and the ends of its 95 % interval; None: untested.
        p: the probability of as much evidence if the symmetry holds.
        words: remarks on the verdict.
    """

    name: str
    verdict: Verdict
    score: tuple[float, float, float] | None
    p: float | None
    words: str = ""


@dataclass(frozen=True)
class SymmetryReport:
    """What was found about a task.

    Args:
        task: its label.
        windows, groups: what the findings rest on, in words.
        explained: the share of the squared residual from the straight line that the forecaster
            explains which the tests take out; where little is explained, little can be seen.
        findings: one for each symmetry.
        axis: an up: the only direction about which rotations hold, in the plane the one that all
            mirrors that hold contain, on a line an end; None: there is none, or none was found.
        algebra: generators found without being asked for; None: not looked for, or no law was
            found that could commute with any.
        advice: what to do about it.
    """

    task: str
    windows: int
    groups: str
    explained: float
    findings: tuple[Finding, ...]
    axis: tuple[float, ...] | None
    algebra: Algebra | None
    advice: tuple[str, ...]

    def __getitem__(self, name: str) -> Finding:
        """The finding about one symmetry."""
        return next(finding for finding in self.findings if finding.name == name)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "task": self.task,
            "windows": self.windows,
            "groups": self.groups,
            "level": LEVEL,
            "explained": self.explained,
            "symmetries": {
                f.name: {"verdict": f.verdict, "score": f.score, "p": f.p, "words": f.words}
                for f in self.findings
            },
            "axis": self.axis,
            "algebra": None if self.algebra is None else self.algebra.to_json(),
            "advice": list(self.advice),
        }


def find_symmetries(
    task: Task,
    tell: Callable[[int], None] = lambda _: None,
    *,
    only: Sequence[str] = (),
    most_rows: int = MOST_ROWS,
) -> SymmetryReport:
    """Ask all questions about the training and validation windows of a task.

    Args:
        task: whose windows.
        tell: called with 1 after each of ``len(ASKED_ABOUT) + 1`` steps.
        only: ask about these only, and do not look for an algebra; none: about all.
        most_rows: nodes in windows to examine.
    """
    if most_rows < 1:
        raise InputError(f"rows: expected 1 or more, found {most_rows}.")
    sampled = sample(task, most_rows)
    if len(sampled.graph) < FEWEST_WINDOWS or sampled.groups.count < FEWEST_BLOCKS:
        some = sum(int(part.node_counts.sum()) for part in (task.train, task.val)) > most_rows
        raise InputError(
            f"windows: {len(sampled.graph)} windows for training and validation in "
            f"{sampled.groups.describe()} that do not overlap are too few to tell a symmetry from "
            f"chance; give at least {FEWEST_WINDOWS} in {FEWEST_BLOCKS}"
            + (f", or more rows than {most_rows:,} (--rows)." if some else ".")
        )
    unit = typical_distance(sampled.graph)
    plain = rows_of_windows(sampled, unit)
    rows = replace(plain, residual=questions.bounded(plain.residual))
    if _is_rounding(plain):
        raise InputError("windows: everything moves on straight lines; every symmetry holds.")
    asked: dict[str, Evidence | None] = {}

    def ask(name: str, question: Callable[[], Evidence | None]) -> bool:
        """Record an answer. Returns: whether it is evidence against the symmetry."""
        if only and name not in only:
            return False
        asked[name] = question()
        tell(1)
        return _speaks_against(asked[name])

    identity = ask("permutation", lambda: questions.permutation(rows))
    known = questions.translation(rows, identity)  # (also gives the fraction explained)
    ask("translation", lambda: known)
    # Then the law may depend on position: a circular wall is still rotationally symmetric.
    somewhere = _speaks_against(known)
    centre = centre_of(rows, identity) if somewhere else None
    if centre is not None:
        rows = rows.with_place(centre)
    alone = sampled.graph.x.shape[2] == 1
    # (For a single node, nothing else says where in a weak field it is.)
    about = rows.position.mean(0) if alone and centre is None else centre
    ask("boost", lambda: questions.boost(rows, identity))
    ask("time shift", lambda: questions.time_shift(rows, identity))
    untested = _untested(rows, somewhere)
    turning = None if "rotation" in untested else questions.turning_of(rows, identity)
    ask("rotation", lambda: None if turning is None else turning.evidence)
    axis = None if turning is None else _axis(task, turning, rows, identity)
    if "reflection" in untested:
        ask("reflection", lambda: None)
    else:
        ask("reflection", lambda: _reflection(rows, identity, turning, axis))
    ask("scale", lambda: transformed.scaling(sampled, unit, identity, about))
    ask("time reversal", lambda: transformed.time_reversal(sampled, unit, identity, about))
    algebra = None if only else algebra_of(sampled, unit)
    tell(1)
    drifting: Sequence[str] = DRIFTING_IN_A_FIELD if somewhere else DRIFTING
    if rows.groups.blocks:  # in a few recordings, what drifts is not spread by chance for any
        drifting = ASKED_ABOUT
    findings = _judged(asked, UNTESTED | untested, drifting)
    broken = {f.name for f in findings if f.verdict == "broken"}
    if rows.dims == 1 and "reflection" in broken:  # on a line, only an up can tell the ends
        axis = -np.sign(rows.residual.mean(0))
    elif "rotation" not in broken:
        axis = None
    return SymmetryReport(
        task.label,
        rows.windows,
        rows.groups.describe(),
        known.explained,
        findings,
        None if axis is None else tuple(float(f"{a:.3g}") for a in axis + 0.0),
        algebra,
        advice_for(findings, axis, stated_up(task)),
    )


def _is_rounding(rows: Rows) -> bool:
    """Whether the residuals from straight lines are only rounding errors of positions."""
    way = np.linalg.norm(rows.vectors[:, VELOCITY], axis=1)
    reach = np.linalg.norm(rows.position, axis=1) + way
    return bool((np.linalg.norm(rows.residual, axis=1) <= _ROUNDING * reach).all())


def _untested(rows: Rows, somewhere: bool) -> dict[str, str]:
    """Why rotations and reflections cannot be tested, if so.

    Args:
        somewhere: whether absolute position matters.
    """
    pose = same_pose(rows)
    untested = {} if pose is None else dict.fromkeys(("rotation", "reflection"), pose)
    if rows.dims == 1 and somewhere:
        untested["reflection"] = "it matters where on the line, and its middle is not known"
    return untested | ({"rotation": LINE} if rows.dims == 1 else {})


def _speaks_against(evidence: Evidence | None) -> bool:
    """Whether it does so at the level, whatever the other answers are (Bonferroni)."""
    return evidence is not None and evidence.p is not None and evidence.p < LEVEL / len(ASKED_ABOUT)


def stated_up(task: Task) -> Array | None:
    """The up direction given by the data."""
    up = task.train.trajectories.meta.get("up")
    return None if up is None else np.asarray(up, dtype=float) / np.linalg.norm(up)


def _axis(task: Task, turning: questions.Turning, rows: Rows, identity: bool) -> Array | None:
    """The up that the law preserves, if not all rotations: the data's own, or one that is found.

    In space rotations about it hold; in the plane the mirror that contains it does.
    """
    p = turning.evidence.p
    if p is None or p > LEVEL:
        return None
    stated = stated_up(task)
    for axis in [stated] * (stated is not None) + axes_of(turning):
        assert axis is not None
        if rows.dims == 2:
            about = questions.mirrored(rows, identity, axis[None])
        elif same_pose(rows, axis) is not None:
            continue
        else:
            about = questions.turning_of(rows, identity, axis).evidence
        if not _speaks_against(about) or about.size[0] < SLIGHT:
            return axis
    return None


def _reflection(
    rows: Rows, identity: bool, turning: questions.Turning | None, axis: Array | None
) -> Evidence | None:
    """Mirrors that contain the axis; if no rotation holds, the best-fitting candidate mirror.

    (Where rotations cannot be tested, a change of handedness cannot be told from a rotation, except
    on a line, which has no rotations.)
    """
    if axis is not None or turning is None or not _speaks_against(turning.evidence):
        kept = np.zeros((0, rows.dims)) if axis is None else axis[None]
        return questions.mirrored(rows, identity, kept)
    found = [
        questions.mirrored(rows, identity, np.linalg.svd(normal[None])[2][1:])
        for normal in mirrors_of(turning)
    ]
    return max(found, key=lambda evidence: -1.0 if evidence.p is None else evidence.p)


def _judged(
    asked: dict[str, Evidence | None], untested: dict[str, str], drifting: Sequence[str]
) -> tuple[Finding, ...]:
    """Verdicts at the level, corrected for their number (Holm)."""
    p = {name: e.p for name, e in asked.items() if e is not None and e.p is not None}
    rejected = set()
    for place, name in enumerate(sorted(p, key=lambda name: p[name])):
        if p[name] > LEVEL / (len(p) - place):
            break
        rejected.add(name)
    findings = []
    for name in filter(asked.__contains__, ASKED_ABOUT):
        evidence = asked[name]
        if evidence is None or evidence.p is None:
            findings.append(Finding(name, "untested", None, None, untested[name]))
            continue
        score = evidence.size
        verdict: Verdict = "holds"
        if name in rejected and name in drifting:
            verdict = "broken" if score[1] >= SLIGHT else "unclear"
        elif name in rejected:
            verdict = "broken" if score[0] >= SLIGHT else "slightly broken"
        findings.append(Finding(name, verdict, score, evidence.p))
    return tuple(findings)


LINE = "a line has none"
UNTESTED = {
    "translation": "all windows are at the same place",
    "rotation": "all windows point the same way",
    "reflection": "no window has a side: too few vectors",
    "permutation": "nodes come and go, are alone, or are named by their attributes",
    "time shift": "all windows are at the same time of their recording",
    "time reversal": "no windows to read backwards, or ends look unlike starts",
    "scale": "windows differ in size by less than 10 %, or are in a periodic box",
    "boost": "relative motion tells all about the velocity",
}


def advice_for(
    findings: tuple[Finding, ...], axis: Array | None, stated: Array | None
) -> tuple[str, ...]:
    """What to do about what was found."""
    broken = {f.name for f in findings if f.verdict == "broken"}
    said = []
    if any(f.name == "rotation" and f.verdict == "untested" and f.words != LINE for f in findings):
        said.append(
            "Whether there is an up cannot be told"
            + (
                " here; the data say so, and models with the option up read it."
                if stated is not None
                else "; if there is, set meta['up'] in Trajectories.from_arrays, or --task.up."
            )
        )
    if axis is not None:
        where = ", ".join(f"{a:.3g}" for a in axis + 0.0)
        left_alone = (
            f"A line has two ends, and ({where}) points to one: there is an up. ",
            f"Mirrors that contain ({where}) hold, rotations do not: there is an up. ",
            f"Rotations about ({where}) hold, others do not: there is an up. ",
        )
        said.append(
            left_alone[len(axis) - 1]
            + (
                "The data say so, and models with the option up read it."
                if stated is not None and abs(stated @ axis) > 0.99
                else f'Set --task.up {where.replace(",", "")} (or meta={{"up": [{where}]}} in '
                "Trajectories.from_arrays); models with the option up then read it."
            )
        )
    elif "rotation" in broken:
        said.append(
            "About no axis were rotations seen to hold: directions of the laboratory help to "
            "forecast. Compare equivariant models with mlp, lstm and linear."
        )
    if "translation" in broken:
        said.append(
            "It matters where a node is (walls, obstacles, a field): models that see only "
            "differences miss it; compare them with mlp and lstm."
        )
    if "permutation" in broken:
        said.append(
            "Nodes are not exchangeable: use ridge, kernel or body, or set-2 with --model.named."
        )
    if "reflection" in broken and (axis is None or len(axis) > 1):
        up = ", with an up, too," if stated is not None or axis is not None else ""
        said.append(
            f"Left differs from right: the equivariant models here{up} commute with mirrors and "
            "cannot express that; compare them with mlp and lstm."
        )
    matter = ("translation", "rotation", "reflection", "permutation")
    unclear = [f.name for f in findings if f.verdict == "unclear" and f.name in matter]
    if unclear:
        said.append(
            f"Whether {' and '.join(unclear)} may be taken for granted is unclear: compare "
            "equivariant models with some that are not (spacetime compare)."
        )
    elif not broken.intersection(matter):
        said.append(
            "Nothing that matters speaks against models equivariant to E(n) and permutations."
        )
    return tuple(said)
