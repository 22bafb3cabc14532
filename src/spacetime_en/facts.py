"""A record of the data that a model was trained on, stored with its weights."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from spacetime_en._util.schema import Count, Finite, PositiveFloat, PositiveInt

Kind = Literal["node", "pair", "frame"]


def few_numbers(numbers: Sequence[float]) -> str:
    """Numbers as text: all of them if there are few, else the first two and the last."""
    if len(numbers) < 4:
        return ", ".join(f"{number:g}" for number in numbers)
    return f"{numbers[0]:g}, {numbers[1]:g}, ..., {numbers[-1]:g}"


@dataclass(frozen=True)
class DataFacts:
    """The data that a model was trained on, and so the kind of data that it expects.

    Args:
        label: of the task.
        fingerprint: of the task.
        trajectories: fingerprint of the trajectories that its windows were cut from.
        windows: the number of windows in each split.
        frames, nodes, dims: L, N (the largest, if windows differ) and n.
        features, edge_features: d and e.
        frame_time: time between the frames of a window; None if there is only one.
        horizon_times: from the last frame to each target, (T,).
        attributes: the kind of each, by name and in order: of nodes, of pairs, or of nodes in each
            frame.
        measured_velocities: False if velocities were differences of frames.
        box: whether space was periodic.
        units: of length and time, as far as the data specify them.
        origin: of the coordinates that the model read, (n,).
        up: the up direction of the data, (n,), or None.
    """

    label: str
    fingerprint: str
    trajectories: str
    windows: dict[str, Count]
    frames: PositiveInt
    nodes: PositiveInt
    dims: PositiveInt
    features: Count
    edge_features: Count
    frame_time: PositiveFloat | None
    horizon_times: tuple[PositiveFloat, ...]
    attributes: dict[str, Kind]
    measured_velocities: bool
    box: bool
    units: dict[str, str]
    origin: tuple[Finite, ...]
    up: tuple[Finite, ...] | None = None

    def __post_init__(self) -> None:
        times = self.horizon_times
        if not times or any(b <= a for a, b in pairwise(times)):
            raise ValueError(f"horizon_times: expected increasing numbers, found {list(times)}")
        if len(self.origin) != self.dims:
            raise ValueError(f"origin: expected {self.dims} numbers, found {len(self.origin)}")
        if self.up is not None and len(self.up) != self.dims:
            raise ValueError(f"up: expected {self.dims} numbers, found {len(self.up)}")

    def to_json(self) -> dict[str, Any]:
        """Plain values, as they are after a round trip through JSON."""
        return dict(json.loads(json.dumps(dataclasses.asdict(self))))
