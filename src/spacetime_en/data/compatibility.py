"""Check that data are of the kind that a model was trained on."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.facts import DataFacts, Kind, few_numbers
from spacetime_en.geometry import Symmetries

if TYPE_CHECKING:
    from spacetime_en.data.task import Task
    from spacetime_en.data.windows import Windows


_EACH = {"node": "node", "pair": "pair", "frame": "node and frame"}


def facts_of(task: Task) -> DataFacts:
    """Record the properties of the data that a model trained on a task sees."""
    t = task.train.trajectories
    graph, _ = task.train[:1]
    L, _, n = graph.x.shape[1:]
    return DataFacts(
        label=task.label,
        fingerprint=task.fingerprint,
        trajectories=t.fingerprint,
        windows={name: len(windows) for name, windows in task.splits.items()},
        frames=L,
        nodes=int(task.train.node_counts.max()),
        dims=n,
        features=graph.feature_width,
        edge_features=graph.edge_width,
        **_times(task.train),
        attributes=_kinds(t),
        measured_velocities=t.measured_velocities,
        box=t.box is not None,
        units=_units(t),
        origin=tuple(task.train.origin.tolist()),
        up=None if t.meta.get("up") is None else tuple(map(float, t.meta["up"])),
    )


def conform(facts: DataFacts, trajectories: Trajectories) -> Trajectories:
    """Select the attributes that the model was trained with; reject data of another kind.

    Attributes are matched by name and returned in the order used in training. Data without an up
    direction get that of the training data.
    """
    n = trajectories.x.shape[-1]
    if n != facts.dims:
        raise _mismatch("x", f"in {facts.dims} dimensions", f"have {n}")
    if facts.box != (trajectories.box is not None):
        kinds = "open space", "a periodic box"
        raise _mismatch("box", f"in {kinds[facts.box]}", f"are in {kinds[not facts.box]}")
    if facts.measured_velocities != trajectories.measured_velocities:
        kinds = "differences of frames", "measured"
        ours, theirs = kinds[facts.measured_velocities], kinds[not facts.measured_velocities]
        raise _mismatch("v", f"with velocities that were {ours}", f"have {theirs} ones")
    kinds_here = _kinds(trajectories)
    for name, kind in facts.attributes.items():
        if name not in kinds_here:
            instead = f"{', '.join(kinds_here)} instead" if kinds_here else "no attributes"
            raise _mismatch(name, f"with this attribute of each {_EACH[kind]}", f"have {instead}")
        if kinds_here[name] != kind:
            one, other = _EACH[kind], _EACH[kinds_here[name]]
            raise _mismatch(name, f"with one for each {one}", f"have one for each {other}")
    if facts.up is not None and trajectories.meta.get("up") is None:
        trajectories = trajectories.with_up(facts.up)
    if list(facts.attributes) == list(kinds_here):
        return trajectories
    constant, changing = (
        {name: values[name] for name in facts.attributes if name in values}
        for values in (trajectories.attributes, trajectories.frame_attributes)
    )
    return dataclasses.replace(trajectories, attributes=constant, frame_attributes=changing)


def data_mismatches(facts: DataFacts, trajectories: Trajectories) -> list[str]:
    """Differences that deserve a warning: attributes left out, and different units."""
    extra = [name for name in _kinds(trajectories) if name not in facts.attributes]
    problems = [f"{name}: the model was trained without it; it is not read." for name in extra]
    units = _units(trajectories)
    problems += [
        f"{what}_unit: the model was trained on data in {unit}, these are in {units[what]}."
        for what, unit in facts.units.items()
        if units.get(what, unit) != unit
    ]
    return problems


def window_mismatches(facts: DataFacts, windows: Windows, *, any_horizon: bool) -> list[str]:
    """How windows differ from the training windows in ways that change what forecasts mean.

    Args:
        windows: of other data, or of the same data cut differently.
        any_horizon: whether the model can forecast at any horizon.
    """
    here = _times(windows) | {"frames": windows.length}
    words = {
        "horizon_times": "a horizon of",
        "frame_time": "a time between frames of",
        "frames": "windows with a number of frames of",
    }
    if any_horizon:
        del words["horizon_times"]
    problems = []
    for key, what in words.items():
        trained, asked = np.atleast_1d(getattr(facts, key)), np.atleast_1d(here[key])
        if None in (trained[0], asked[0]):
            continue
        if trained.shape != asked.shape or not np.allclose(trained, asked, rtol=1e-9, atol=0):
            known, found = few_numbers(trained.tolist()), few_numbers(asked.tolist())
            problems.append(f"the model was trained for {what} {known}, this task has {found}.")
    return problems


class Trained(Protocol):
    """A model that may carry a record of its training data."""

    @property
    def trained_on(self) -> DataFacts | None: ...
    @property
    def symmetries(self) -> Symmetries: ...


def prepare_for(
    model: Trained, trajectories: Trajectories
) -> tuple[Trajectories, NDArray[np.float64]]:
    """The data as a model expects them, and the origin of its coordinates, (n,).

    A model that is not translation equivariant keeps the origin of its training; for all others
    the data's own origin is equivalent, and closer to the data.
    """
    facts = model.trained_on
    if facts is None:
        return trajectories, trajectories.origin
    arranged = conform(facts, trajectories)
    moved = model.symmetries.translation
    return arranged, trajectories.origin if moved else np.array(facts.origin)


def _mismatch(what: str, trained: str, given: str) -> InputError:
    return InputError(
        f"{what}: the model was trained {trained}, and the data {given}; give data of the same "
        "kind, or train on such."
    )


def _times(windows: Windows) -> dict[str, Any]:
    """The time between frames, and from the last frame to each target."""
    _, (frames, *_) = windows.locate(np.arange(1))
    times, L = windows.trajectories.times[frames], windows.length  # of a window and its targets
    return {
        "frame_time": float(times[1] - times[0]) if L > 1 else None,
        "horizon_times": tuple((times[L:] - times[L - 1]).tolist()),
    }


def _kinds(trajectories: Trajectories) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {
        name: "node" if len(values.shape) == 2 else "pair"
        for name, values in trajectories.attributes.items()
    }
    return kinds | dict.fromkeys(trajectories.frame_attributes, "frame")


def _units(trajectories: Trajectories) -> dict[str, str]:
    named = ((what, trajectories.meta.get(f"{what}_unit")) for what in ("length", "time"))
    return {what: str(unit) for what, unit in named if unit is not None}
