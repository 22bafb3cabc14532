"""What a model has seen of its data: a record that travels with its weights."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal

from spacetime_en._util.schema import Count, Finite, Positive, Scale

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
    frame_time: Scale | None
    horizon_time: Scale
    attributes: dict[str, Kind]
    measured_velocities: bool
    box: bool
    units: dict[str, str]
    origin: tuple[Finite, ...]

    def __post_init__(self) -> None:
        if len(self.origin) != self.dims:
            raise ValueError(f"origin: expected {self.dims} numbers, found {len(self.origin)}")

    def to_json(self) -> dict[str, Any]:
        """Plain values, as JSON gives them back."""
        return dict(json.loads(json.dumps(dataclasses.asdict(self))))
