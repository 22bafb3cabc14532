"""What the symmetries of the data imply for options: an up direction, equivariant or not."""

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
    """The required entries about a symmetry."""

    verdict: str
    words: str = ""


@dataclass
class _Study:
    """The part of the schema of ``symmetries.json`` that is needed here."""

    format: int
    symmetries: dict[str, _Symmetry] = field(default_factory=dict)
    axis: tuple[Finite, ...] | None = None
    impossible: str | None = None


@dataclass(frozen=True)
class DataOptions:
    """What the training and validation windows of a task imply for options.

    Args:
        verdicts: on each spatial symmetry.
        words: about verdicts that need an explanation.
        stated: the up direction given by the data.
        found: the up that was found: the only direction about which rotations were seen to hold;
            in the plane, the one contained in the mirrors that hold.
        impossible: why the symmetries could not be tested; None: they were.
    """

    verdicts: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    stated: tuple[float, ...] | None = None
    found: tuple[float, ...] | None = None
    impossible: str | None = None

    def up_for(self, task: Mapping[str, Any]) -> tuple[float, ...] | None:
        """The up to give to a task: the one that was found, unless the task has one."""
        return self.found if "data" in task and self.stated is None else None

    def may_turn(self, up: tuple[float, ...] | None) -> bool:
        """Whether windows may be rotated at random, given the up direction of the data."""
        if up is not None or (self.found is not None and self.stated is not None):
            return True
        on_a_line = self.found is not None and len(self.found) == 1  # the two ends of a line differ
        return not (self._is_broken("rotation") or on_a_line)

    def said(self, candidates: Sequence[Candidate], up: tuple[float, ...] | None) -> list[str]:
        """What is known, and which models can use it, in a few sentences.

        Args:
            candidates: the models that are compared.
            up: the direction given to the data.
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
    """Study a task, or read the findings of an earlier session or of another machine.

    Only training and validation windows are read, and only spatial symmetries are tested.

    Args:
        folder: of the comparison.
        task: as given by the user.
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
    """The report as plain values, or why there is none."""
    try:
        with progress_bar(STUDY_FILE.partition(".")[0], len(OF_SPACE) + 1) as advance:
            return find_symmetries(task, advance, only=OF_SPACE).to_json()
    except InputError as error:
        return {"impossible": str(error)}


def _direction(up: Iterable[float]) -> str:
    return f"({', '.join(f'{u:.3g}' for u in up)})"


def _left_alone(up: Sequence[float]) -> str:
    """The directions that remain equivalent, given this up."""
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
    """The models that cannot know it, because they have a symmetry, and those that can."""
    blind = [c for c in candidates if has(c)]
    able = [c for c in candidates if not has(c)]
    if not able:
        return f"no model compared can know it; name {instead}, too."
    if not blind:
        return "all models compared can know it."
    return f"{_named(able)} can know it, {_named(blind)} cannot."
