"""What the symmetries of the data say about options: an up direction, equivariant or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spacetime_en._util.errors import InputError
from spacetime_en._util.progress import progress_bar
from spacetime_en._util.schema import Finite, typed
from spacetime_en.compare.candidates import Candidate
from spacetime_en.compare.results import written_once
from spacetime_en.data.task import Task
from spacetime_en.nn.presets import arguments_of, find_preset
from spacetime_en.symmetries.study import OF_SPACE, find_symmetries, stated_up

STUDY_FILE = "symmetries.json"
STUDY_FORMAT = 1
MOST_NAMED = 4  # names of models in a sentence


@dataclass
class _Symmetry:
    """What must be known about a symmetry."""

    verdict: str
    words: str = ""


@dataclass
class _Study:
    """The schema of ``symmetries.json``: what a report says, as far as it is needed here."""

    format: int
    symmetries: dict[str, _Symmetry] = field(default_factory=dict)
    axis: tuple[Finite, ...] | None = None
    impossible: str | None = None


@dataclass(frozen=True)
class DataOptions:
    """What the training and validation windows of a task say about options.

    Args:
        verdicts: of each symmetry of space.
        words: about those verdicts that need some.
        stated: the direction that the data call up.
        found: the up that was found: the only direction about which rotations were seen to hold,
            in the plane the one that the mirrors that hold contain.
        impossible: why the data could not be asked; None: they were.
    """

    verdicts: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    stated: tuple[float, ...] | None = None
    found: tuple[float, ...] | None = None
    impossible: str | None = None

    def up_for(self, task: Mapping[str, Any]) -> tuple[float, ...] | None:
        """The up that a task is to be given: that was found, and that it has not."""
        return self.found if "data" in task and self.stated is None else None

    def may_turn(self, up: tuple[float, ...] | None) -> bool:
        """Whether windows may be turned at random, with the direction that the data call up."""
        if up is not None or (self.found is not None and self.stated is not None):
            return True
        on_a_line = self.found is not None and len(self.found) == 1  # whose ends differ
        return not (self._is_broken("rotation") or on_a_line)

    def said(self, candidates: Sequence[Candidate], up: tuple[float, ...] | None) -> list[str]:
        """What is known, and which models can use it, in a few sentences.

        Args:
            candidates: the models that are compared.
            up: the direction that the data were given.
        """
        if self.impossible is not None:
            return [f"Symmetries of the data are not known: {self.impossible}"]
        fitted = [c for c in candidates if c.kind != "trivial"]
        readers = [c for c in fitted if "up" in arguments_of(find_preset(c.preset).model)]
        said = []
        if self.stated is not None:
            said.append(f"The data call {_direction(self.stated)} up: {_readers(readers)}.")
        if up is not None:
            said.append(f"{_left_alone(up)}, which models get as up: {_readers(readers)}.")
        elif self.found is not None:
            said.append(f"{_left_alone(self.found)}.")
        elif self._is_broken("rotation"):
            said.append(
                "Directions of space matter, and no axis was found: "
                + _split(fitted, lambda c: c.symmetries.rotation, "mlp or lstm")
            )
        elif self.verdicts.get("rotation") == "untested":
            said.append(f"Rotations were not tested: {self.words['rotation']}.")
        if self._is_broken("translation"):
            said.append(
                "It matters where nodes are: "
                + _split(fitted, lambda c: c.symmetries.translation, "mlp or lstm")
            )
        if self._is_broken("permutation"):
            said.append(
                "Nodes differ: "
                + _split(fitted, lambda c: c.symmetries.permutation, "ridge or kernel")
            )
        if unclear := [name for name, verdict in self.verdicts.items() if verdict == "unclear"]:
            said.append(f"Whether {' and '.join(unclear)} may be taken for granted is unclear.")
        return said or ["Nothing in the data speaks against equivariant models."]

    def _is_broken(self, name: str) -> bool:
        return self.verdicts.get(name) == "broken"


def options_for(folder: Path, task: Task) -> DataOptions:
    """Study a task, or read what an earlier sitting or another machine has found out about it.

    Only training and validation windows are read, and only symmetries of space are asked about.

    Args:
        folder: of the comparison.
        task: as the user gave it.
    """
    path = folder / STUDY_FILE
    entries = written_once(path, STUDY_FORMAT, lambda: _studied(task))
    study: _Study = typed(entries, _Study, str(path))
    up = stated_up(task)
    return DataOptions(
        {name: found.verdict for name, found in study.symmetries.items()},
        {name: found.words for name, found in study.symmetries.items()},
        None if up is None else tuple(up.tolist()),
        study.axis,
        study.impossible,
    )


def _studied(task: Task) -> dict[str, Any]:
    """The report in plain values, or why there is none."""
    try:
        with progress_bar(STUDY_FILE.partition(".")[0], len(OF_SPACE) + 1) as advance:
            return find_symmetries(task, advance, only=OF_SPACE).to_json()
    except InputError as error:
        return {"impossible": str(error)}


def _direction(up: Iterable[float]) -> str:
    return f"({', '.join(f'{u:.3g}' for u in up)})"


def _left_alone(up: Sequence[float]) -> str:
    """What of space is left, if this is an up."""
    if len(up) == 1:
        return f"The line has two ends, and {_direction(up)} points to one"
    what = "Rotations hold about" if len(up) == 3 else "Mirrors hold that contain"
    return f"{what} {_direction(up)} only"


def _named(candidates: Sequence[Candidate]) -> str:
    names = [c.preset for c in candidates]
    more = len(names) - MOST_NAMED
    return ", ".join(names) if more < 2 else f"{', '.join(names[:MOST_NAMED])} and {more} more"


def _readers(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return "none of the models compared reads it; set-2 does"
    return f"{_named(candidates)} {'read it' if len(candidates) > 1 else 'reads it'}"


def _split(candidates: Sequence[Candidate], has: Callable[[Candidate], bool], instead: str) -> str:
    """Which models cannot know it, because they have a symmetry, and which can."""
    blind = [c for c in candidates if has(c)]
    able = [c for c in candidates if not has(c)]
    if not able:
        return f"no model compared can know it; name {instead}, too."
    if not blind:
        return "all models compared can know it."
    return f"{_named(able)} can know it, {_named(blind)} cannot."
