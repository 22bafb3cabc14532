"""Whether data are of the kind that a model was trained on."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.facts import DataFacts, Kind
from spacetime_en.geometry import Symmetries

if TYPE_CHECKING:
    from spacetime_en.data.task import Task
    from spacetime_en.data.windows import Windows


def facts_of(task: Task) -> DataFacts:
    """What a model that is trained on a task sees."""
    t = task.train.trajectories
    graph, _ = task.train[:1]
    L, N, n = graph.x.shape[1:]
    return DataFacts(
        label=task.label,
        fingerprint=task.fingerprint,
        trajectories=t.fingerprint,
        windows={name: len(windows) for name, windows in task.splits.items()},
        frames=L,
        nodes=N,
        dims=n,
        features=graph.feature_width,
        edge_features=graph.edge_width,
        **_times(task.train),
        attributes=_kinds(t),
        measured_velocities=t.measured_velocities,
        box=t.box is not None,
        units=_units(t),
        origin=tuple(task.train.origin.tolist()),
    )


def arranged_as(facts: DataFacts, trajectories: Trajectories) -> Trajectories:
    """Other data with their attributes as in training; refused if they are of another kind.

    Attributes are known by their names. Those that the model never saw are left out.
    """
    n = trajectories.x.shape[-1]
    if n != facts.dims:
        raise _other("x", f"in {facts.dims} dimensions", f"have {n}")
    if facts.box != (trajectories.box is not None):
        kinds = "open space", "a periodic box"
        raise _other("box", f"in {kinds[facts.box]}", f"are in {kinds[not facts.box]}")
    if facts.measured_velocities != trajectories.measured_velocities:
        kinds = "differences of frames", "measured"
        ours, theirs = kinds[facts.measured_velocities], kinds[not facts.measured_velocities]
        raise _other("v", f"with velocities that were {ours}", f"have {theirs} ones")
    have = _kinds(trajectories)
    for name, kind in facts.attributes.items():
        if name not in have:
            known = f"{', '.join(have)} instead" if have else "no attributes"
            raise _other(name, f"with this attribute of each {kind}", f"have {known}")
        if have[name] != kind:
            raise _other(name, f"with one for each {kind}", f"have one for each {have[name]}")
    own = {name: trajectories.attributes[name] for name in facts.attributes}
    if list(own) == list(have):
        return trajectories
    return dataclasses.replace(trajectories, attributes=own)


def data_mismatches(facts: DataFacts, trajectories: Trajectories) -> list[str]:
    """What is not so bad as to be refused: attributes left out, and units of other names."""
    extra = [name for name in trajectories.attributes if name not in facts.attributes]
    found = [f"{name}: the model was trained without it; it is not read." for name in extra]
    theirs = _units(trajectories)
    found += [
        f"{what}_unit: the model was trained on data in {unit}, these are in {theirs[what]}."
        for what, unit in facts.units.items()
        if theirs.get(what, unit) != unit
    ]
    return found


def window_mismatches(facts: DataFacts, windows: Windows, *, any_horizon: bool) -> list[str]:
    """In what windows differ from those trained on, so that forecasts mean something else.

    Args:
        windows: of other data, or of the same cut otherwise.
        any_horizon: whether the model may be asked for any.
    """
    theirs = _times(windows) | {"frames": windows.length}
    words = {
        "horizon_time": "a horizon of",
        "frame_time": "a time between frames of",
        "frames": "windows with a number of frames of",
    }
    if any_horizon:
        del words["horizon_time"]
    return [
        f"the model was trained for {what} {ours:g}, this task has {theirs[key]:g}."
        for key, what in words.items()
        if None not in (ours := getattr(facts, key), theirs[key])
        and not math.isclose(ours, theirs[key])
    ]


class Trained(Protocol):
    """A model that may know what it was trained on."""

    @property
    def trained_on(self) -> DataFacts | None: ...
    @property
    def symmetries(self) -> Symmetries: ...


def as_trained(
    model: Trained, trajectories: Trajectories
) -> tuple[Trajectories, NDArray[np.float64]]:
    """Data as a model expects them, and the origin from which it is to see them, (n,).

    A model that sees where things are keeps the origin that it was trained with; for the others
    the data's own is as good, and near them.
    """
    facts = model.trained_on
    if facts is None:
        return trajectories, trajectories.origin
    arranged = arranged_as(facts, trajectories)
    own = model.symmetries.translation
    return arranged, trajectories.origin if own else np.array(facts.origin)


def _other(what: str, trained: str, found: str) -> InputError:
    return InputError(
        f"{what}: the model was trained {trained}, and the data {found}; give data of the same "
        "kind, or train on such."
    )


def _times(windows: Windows) -> dict[str, Any]:
    """The times in a window."""
    _, (frames, *_) = windows.places(np.arange(1))
    times = windows.trajectories.times[frames]  # of a window and its target
    return {
        "frame_time": float(times[1] - times[0]) if windows.length > 1 else None,
        "horizon_time": float(times[-1] - times[-2]),
    }


def _kinds(trajectories: Trajectories) -> dict[str, Kind]:
    return {
        name: "node" if len(stacked.shape) == 2 else "pair"
        for name, stacked in trajectories.attributes.items()
    }


def _units(trajectories: Trajectories) -> dict[str, str]:
    named = ((what, trajectories.meta.get(f"{what}_unit")) for what in ("length", "time"))
    return {what: str(unit) for what, unit in named if unit is not None}
