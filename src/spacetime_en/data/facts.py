"""What a model has seen of its data, and whether other data are of the same kind."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from spacetime_en.data.trajectories import Trajectories
from spacetime_en.errors import InputError
from spacetime_en.schema import Count, Positive

if TYPE_CHECKING:
    from spacetime_en.data.tasks import Task
    from spacetime_en.data.windows import Windows
    from spacetime_en.nn.forecaster import Forecaster

Kind = Literal["node", "pair"]


@dataclass(frozen=True)
class DataFacts:
    """The data of a training, and so what a model takes all later data for.

    Args:
        label: of the task.
        fingerprint: of the task.
        trajectories: the fingerprint of what it was cut from.
        windows: how many there are in each split.
        frames, nodes, dims: L, N and n.
        features, edge_features: d and e.
        frame_time: between the frames of a window; None: there is only one.
        horizon_time: from the last frame to the target.
        attributes: what each is known of, by name, in their order.
        measured_velocities: or else they were differences of frames.
        box: whether space was periodic.
        units: of length and time, by name, as far as the data said them.
        origin: the point that was seen as 0, (n,).
    """

    label: str
    fingerprint: str
    trajectories: str
    windows: dict[str, Count]
    frames: Positive
    nodes: Positive
    dims: Positive
    features: Count
    edge_features: Count
    frame_time: float | None
    horizon_time: float
    attributes: dict[str, Kind]
    measured_velocities: bool
    box: bool
    units: dict[str, str]
    origin: tuple[float, ...]

    @classmethod
    def of(cls, task: Task) -> DataFacts:
        """What a model that is trained on a task sees."""
        t = task.train.trajectories
        graph, _ = task.train[:1]
        L, N, n = graph.x.shape[1:]
        return cls(
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

    def to_json(self) -> dict[str, Any]:
        """Plain values, as JSON gives them back."""
        return dict(json.loads(json.dumps(dataclasses.asdict(self))))

    def arranged(self, trajectories: Trajectories) -> Trajectories:
        """Other data with their attributes as in training; refused if they are of another kind.

        Attributes are known by their names. Those that the model never saw are left out.
        """
        n = trajectories.x.shape[-1]
        if n != self.dims:
            raise _other("x", f"in {self.dims} dimensions", f"have {n}")
        if self.box != (trajectories.box is not None):
            kinds = "open space", "a periodic box"
            raise _other("box", f"in {kinds[self.box]}", f"are in {kinds[not self.box]}")
        if self.measured_velocities != trajectories.measured_velocities:
            kinds = "differences of frames", "measured"
            ours, theirs = kinds[self.measured_velocities], kinds[not self.measured_velocities]
            raise _other("v", f"with velocities that were {ours}", f"have {theirs} ones")
        have = _kinds(trajectories)
        for name, kind in self.attributes.items():
            if name not in have:
                known = f"{', '.join(have)} instead" if have else "no attributes"
                raise _other(name, f"with this attribute of each {kind}", f"have {known}")
            if have[name] != kind:
                raise _other(name, f"with one for each {kind}", f"have one for each {have[name]}")
        own = {name: trajectories.attributes[name] for name in self.attributes}
        if list(own) == list(have):
            return trajectories
        return dataclasses.replace(trajectories, attributes=own)

    def unlike(self, trajectories: Trajectories) -> list[str]:
        """What is not so bad as to be refused: attributes left out, and units of other names."""
        extra = [name for name in trajectories.attributes if name not in self.attributes]
        found = [f"{name}: the model was trained without it; it is not read." for name in extra]
        theirs = _units(trajectories)
        found += [
            f"{what}_unit: the model was trained on data in {unit}, these are in {theirs[what]}."
            for what, unit in self.units.items()
            if theirs.get(what, unit) != unit
        ]
        return found

    def unlike_windows(self, windows: Windows, *, any_horizon: bool) -> list[str]:
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
            if None not in (ours := getattr(self, key), theirs[key])
            and not math.isclose(ours, theirs[key])
        ]


def as_trained(
    model: Forecaster, trajectories: Trajectories
) -> tuple[Trajectories, NDArray[np.float64]]:
    """Data as a model expects them, and the origin from which it is to see them, (n,).

    A model that sees where things are keeps the origin that it was trained with; for the others
    the data's own is as good, and near them.
    """
    facts = model.trained_on
    if facts is None:
        return trajectories, trajectories.origin
    arranged = facts.arranged(trajectories)
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
