"""The ETH/UCY benchmark: pedestrians seen from above; trained on all scenes but one.

ETH: Pellegrini et al. 2009; UCY: Lerner et al. 2007. The protocol is Social-GAN's, which is nearly
universal: eight frames of 0.4 s in, the next twelve out, starting at every frame of a scene, for
the people who are present in all twenty.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import PositiveInt, reason
from spacetime_en.data.datasets.dataset import DataSet
from spacetime_en.data.slots import NOBODY, assign_slots
from spacetime_en.data.steps import TargetSteps
from spacetime_en.data.task import Task
from spacetime_en.data.trajectories import Trajectories

TestScene = Literal["eth", "hotel", "univ", "zara1", "zara2"]
# The recordings of each scene. The last two are used only for training.
TESTED: dict[TestScene, tuple[str, ...]] = {
    "eth": ("biwi_eth",),
    "hotel": ("biwi_hotel",),
    "univ": ("students001", "students003"),
    "zara1": ("crowds_zara01",),
    "zara2": ("crowds_zara02",),
}
RECORDINGS = (
    *(name for names in TESTED.values() for name in names),
    "crowds_zara03",
    "uni_examples",
)
FRAME_STEP, FRAME_SECONDS = (
    10,
    0.4,
)  # from one observation to the next


@dataclass(frozen=True)
class Pedestrians(DataSet):
    """People walking, measured: ETH/UCY, in metres (needs its files, see :func:`find_scenes`).

    Args:
        scene: the one to test on, whole: eth, hotel, univ, zara1 or zara2. The first 80 % of the
            others are trained on, and the rest of them is for validation.
        target_steps: frames from the last one to the targets, 0.4 s each: 1..12, or fewer.
        min_people: leave out windows with fewer people; 2 and 1 are in use.
    """

    scene: TestScene
    target_steps: TargetSteps = "1..12"
    min_people: PositiveInt = 2

    def load(self, name: str, cache: Path) -> Task:
        """Read the recordings, and cut the windows of the protocol."""
        data = load_scenes(find_scenes(cache / "eth_ucy"), self.scene)
        return Task.from_trajectories(
            data,
            length=8,
            stride=1,
            target_steps=self.target_steps,
            nodes="all",
            min_nodes=self.min_people,
            name=name,
        )


def find_scenes(folder: Path) -> Path:
    """The folder with the recordings: ``$SPACETIME_EN_ETH_UCY``, if set, or `folder`."""
    given = os.environ.get("SPACETIME_EN_ETH_UCY")
    place = Path(given or folder)
    if all((place / part).is_dir() for part in ("all_data", "train", "val")):
        return place
    if given:
        raise InputError(
            f"SPACETIME_EN_ETH_UCY: expected the folders all_data, train and val in {given}."
        )
    raise InputError(
        "ETH/UCY pedestrians: the data are not here; set SPACETIME_EN_ETH_UCY to a folder with the "
        "scenes as text, whole in all_data, and cut in time in train and val, or put these into "
        f"{folder}."
    )


class _Part(NamedTuple):
    """A recording or a part of one: its name, its split, and (frame, person, x, y), (M, 4)."""

    name: str
    split: str
    table: NDArray[np.float64]


def load_scenes(folder: Path, scene: TestScene) -> Trajectories:
    """The recordings of a benchmark, each labelled with its split."""
    tested = TESTED[scene]
    others = [name for name in RECORDINGS if name not in tested]
    files = [(name, "train", folder / "train" / f"{name}_train.txt") for name in others]
    files += [(name, "val", folder / "val" / f"{name}_val.txt") for name in others]
    files += [(name, "test", folder / "all_data" / f"{name}.txt") for name in tested]
    return _as_trajectories([_Part(name, split, _table(path)) for name, split, path in files])


def _table(path: Path) -> NDArray[np.float64]:
    """Read a recording: frame, person, x and y on each line."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about empty files
            table = np.loadtxt(path, ndmin=2)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({reason(error)}).") from None
    if table.shape[1] != 4 or not np.isfinite(table).all():
        raise InputError(f"{path}: expected four numbers a line: frame, person, x and y.")
    if (table[:, :2] % (FRAME_STEP, 1)).any():
        raise InputError(
            f"{path}: expected frame numbers that are multiples of {FRAME_STEP}, and whole numbers "
            "for people."
        )
    if len(np.unique(table[:, :2], axis=0)) < len(table):
        raise InputError(f"{path}: a person is there twice in the same frame.")
    return table


def _as_trajectories(parts: Sequence[_Part]) -> Trajectories:
    """Stack recordings along the run axis, people in slots; omitted frames are empty."""
    rows: list[tuple[NDArray[np.int64], ...]] = []
    for part in parts:
        number = part.table[:, 0].astype(np.int64) // FRAME_STEP
        frame = number - number.min()
        people, person = np.unique(part.table[:, 1].astype(np.int64), return_inverse=True)
        first, last = np.full(len(people), frame.max()), np.zeros(len(people), dtype=np.int64)
        np.minimum.at(first, person, frame)
        np.maximum.at(last, person, frame)
        rows.append((frame, people, person, first, last, assign_slots(first, last)))
    lengths = np.array([frame.max() + 1 for frame, *_ in rows])
    shape = (len(parts), lengths.max(), max(slot.max() for *_, slot in rows) + 1)
    x, ids = np.zeros((*shape, 2)), np.full(shape, NOBODY)
    observed = np.zeros(shape, dtype=bool)
    for run, (part, (frame, people, person, first, last, slot)) in enumerate(
        zip(parts, rows, strict=True)
    ):
        x[run, frame, slot[person]] = part.table[:, 2:]
        observed[run, frame, slot[person]] = True
        for i, number in enumerate(people):
            ids[run, first[i] : last[i] + 1, slot[i]] = number
    meta: dict[str, Any] = {
        "source": "ETH (Pellegrini et al. 2009) and UCY (Lerner et al. 2007)",
        "length_unit": "m",
        "time_unit": "s",
        "recordings": [part.name for part in parts],
        "first_frames": [int(part.table[:, 0].min()) for part in parts],
        "splits": [part.split for part in parts],
    }
    times = FRAME_SECONDS * np.arange(shape[1])
    return Trajectories.from_arrays(x, times=times, observed=observed, ids=ids, meta=meta)
