"""Motion capture in Acclaim's ASF/AMC format, as in the CMU database.

A skeleton (``.asf``) is a tree of bones, each with a direction, a length and the frame of its own
angles; a motion (``.amc``) has, for each frame, the root's position and the angles of all joints.
Forward kinematics gives the positions: with C the rotation of a bone's frame and R that of its
angles, a bone is rotated by M = M_parent C R C^-1 and ends at x = x_parent + length M direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import check_name, open_regular, reason, shortened
from spacetime_en.data.limits import check_memory
from spacetime_en.data.readers.archives import unpacked
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.valid import MOST_ATTRIBUTES, Floats

FRAMES_PER_SECOND = 120  # of the CMU database
MOTION_ENDINGS = (".asf", ".amc")
MOST_BONES = MOST_ATTRIBUTES - 2  # each joint becomes an attribute


@dataclass(frozen=True)
class Bone:
    """A bone, and the joint at its end.

    Args:
        name: of both.
        direction: unit vector from the joint before it, in the pose of the skeleton file, (3,).
        length: in the file's unit.
        axis: rotation of its own frame, (3, 3).
        dof: the angles that a motion gives, such as ``("rx", "rz")``.
    """

    name: str
    direction: Floats
    length: float
    axis: Floats
    dof: tuple[str, ...]


@dataclass(frozen=True)
class Skeleton:
    """Bones and how they are connected.

    Args:
        bones: by name, in the file's order; the root is not among them.
        parents: of every bone but the root, by name.
        order: of the root's numbers in a motion, such as ``TX TY TZ RX RY RZ``.
        axis: rotation of the root's frame, (3, 3).
        degrees: whether angles are in degrees.
    """

    bones: dict[str, Bone]
    parents: dict[str, str]
    order: tuple[str, ...]
    axis: Floats
    degrees: bool = True

    @property
    def joints(self) -> list[str]:
        """The names of the joints, the root first."""
        return ["root", *self.bones]

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Pairs of joints that a bone connects, (child, parent)."""
        place = {name: i for i, name in enumerate(self.joints)}
        return [(place[name], place[self.parents[name]]) for name in self.bones]

    def positions(self, motion: dict[str, Floats]) -> Floats:
        """The joints' positions, (T, 31, 3) for the CMU skeleton, from the numbers of a motion."""
        root = dict(zip(self.order, motion["root"].T, strict=True))
        check_memory(12 * len(self.joints) * len(motion["root"]), "motion")  # positions, rotations
        x = {"root": np.stack([root[f"T{k}"] for k in "XYZ"], axis=-1)}  # (T, 3)
        turns = _turned([root[f"R{k}"] for k in "XYZ"], self.degrees)
        m = {"root": self.axis @ turns @ self.axis.T}  # (T, 3, 3)
        for name in self._from_the_root():
            bone, parent = self.bones[name], self.parents[name]
            given = dict(zip(bone.dof, motion[name].T, strict=True)) if bone.dof else {}
            still = np.zeros(len(x["root"]))
            turns = _turned([given.get(f"r{k}", still) for k in "xyz"], self.degrees)
            m[name] = m[parent] @ bone.axis @ turns @ bone.axis.T
            x[name] = x[parent] + bone.length * (m[name] @ bone.direction)
        return np.stack([x[name] for name in self.joints], axis=1)

    def _from_the_root(self) -> Iterator[str]:
        """Every bone, after its parent."""
        placed, left = {"root"}, list(self.bones)
        while left:
            ready = [name for name in left if self.parents.get(name) in placed]
            if not ready:
                raise InputError(f"hierarchy: {left[0]} does not hang on the root.")
            yield from ready
            placed |= set(ready)
            left = [name for name in left if name not in placed]


def rotation(x: Floats, y: Floats, z: Floats) -> Floats:
    """Rotate about x, then about y, then about z: R_z R_y R_x, (..., 3, 3)."""
    (cx, sx), (cy, sy), (cz, sz) = ((np.cos(a), np.sin(a)) for a in (x, y, z))
    rows = [
        [cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx],
        [sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx],
        [-sy, cy * sx, cy * cx],
    ]
    return np.stack([np.stack(np.broadcast_arrays(*row), axis=-1) for row in rows], axis=-2)


# --- files --------------------------------------------------------------------------------------


def parse_asf(text: str, where: str = "asf") -> Skeleton:
    """Parse the skeleton from the text of an ``.asf`` file."""
    try:
        sections = _sections(text)
        units = dict(line.split(None, 1) for line in sections["units"])
        angle = units.get("angle", "deg").strip()
        if angle not in ("deg", "rad"):
            raise ValueError(f"expected angles in deg or rad: {angle}")
        degrees = angle == "deg"
        root = dict(line.split(None, 1) for line in sections["root"])
        bones: dict[str, Bone] = {}
        for block in _blocks(sections["bonedata"]):
            named = dict(line.split(None, 1) for line in block if line[0].isalpha())
            *axis, turned = named["axis"].split()
            free = named.get("dof", "").lower().split()
            if unknown := set(free) - {"rx", "ry", "rz", "tx", "ty", "tz", "l"}:
                raise ValueError(f"there is no degree of freedom {min(unknown)}: {named['name']}")
            dof = tuple(d for d in free if d.startswith("r"))
            if turned.upper() != "XYZ" or list(dof) != sorted(dof):
                raise ValueError(f"only angles in the order x, y, z are read: {named['name']}")
            name = check_name(named["name"].strip(), where)
            if name in bones or name == "root" or len(bones) == MOST_BONES:
                raise ValueError(f"expected at most {MOST_BONES} bones, each once: {name}")
            bones[name] = Bone(
                name,
                np.array(_numbers(named["direction"].split(), 3)),
                _numbers([named["length"]], 1)[0],
                _turned(_numbers(axis, 3), degrees),
                dof,
            )
        parents: dict[str, str] = {}
        for line in next(_blocks(sections["hierarchy"])):
            parent, *children = line.split()
            parents |= dict.fromkeys(children, parent)
        orientation = _numbers(root["orientation"].split(), 3)
        if any(float(c) != 0 for c in root.get("position", "").split()):
            raise ValueError("only a root at the origin is read")
        if root.get("axis", "XYZ").strip().upper() != "XYZ":
            raise ValueError("only angles in the order x, y, z are read: root")
        order = tuple(root["order"].upper().split())
        if sorted(order) != ["RX", "RY", "RZ", "TX", "TY", "TZ"]:
            raise ValueError("expected the order of TX, TY, TZ, RX, RY and RZ in the root")
    except InputError:
        raise
    except (KeyError, ValueError, IndexError, StopIteration) as error:
        raise InputError(f"{where}: is no ASF skeleton ({reason(error)}).") from None
    return Skeleton(bones, parents, order, _turned(orientation, degrees), degrees)


def parse_amc(text: str, where: str = "amc") -> dict[str, Floats]:
    """Parse the numbers of every joint from the text of an ``.amc`` file, by name, each (T, k)."""
    rows_of: dict[str, list[list[float]]] = {}
    frames = 0
    try:
        for line in text.splitlines():
            words = line.split()
            if words and words[0].upper() == ":RADIANS":
                raise ValueError("only angles in degrees are read")
            if not words or words[0][0] in "#:":
                continue
            if len(words) == 1:
                frames += int(words[0]) > 0  # the number of the next frame
                continue
            rows_of.setdefault(words[0], []).append([float(w) for w in words[1:]])
        motion = {name: np.array(values) for name, values in rows_of.items()}
    except ValueError as error:
        raise InputError(f"{where}: is no AMC motion ({reason(error)}).") from None
    if (
        frames == 0
        or "root" not in motion
        or any(values.shape != (frames, values.shape[-1]) for values in motion.values())
    ):
        raise InputError(f"{where}: is no AMC motion, or cut off: frames of different joints.")
    return motion


@dataclass
class MotionFiles:
    """The ASF and AMC files in a folder or a tar file, by trial.

    Args:
        path: of the folder or tar file; subjects may have folders of their own.
    """

    path: Path
    _read: dict[str, Callable[[], str]] = field(default_factory=dict)
    _motions: dict[str, str] = field(default_factory=dict)  # the file of each trial

    def __post_init__(self) -> None:
        for name, read in _files(self.path):
            stem = PurePosixPath(name).stem
            if not name.isprintable():
                raise InputError(f"{self.path}: {shortened(name)} cannot be the name of a file.")
            if name in self._read or (name.endswith(".amc") and stem in self._motions):
                raise InputError(
                    f"{self.path}: two trials or skeletons are called {stem}; give each a name of "
                    "its own."
                )
            self._read[name] = read
            if name.endswith(".amc"):
                self._motions[stem] = name
        if not self._motions:
            raise InputError(f"{self.path}: holds no .amc file.")

    @property
    def trials(self) -> list[str]:
        """The names of the trials, such as ``35_01``, in order."""
        return sorted(self._motions)

    def skeleton(self, trial: str) -> Skeleton:
        """The skeleton of a trial: that of its subject, or the only one (first: in its folder)."""
        subject, folder = trial.rsplit("_", 1)[0], PurePosixPath(self._file(trial)).parent
        every = [PurePosixPath(name) for name in self._read if name.endswith(".asf")]
        of_subject = [path for path in every if path.stem == subject]
        eligible = of_subject or every
        for candidates in ([path for path in eligible if path.parent == folder], eligible):
            if len(candidates) == 1:
                return parse_asf(self._read[str(candidates[0])](), f"{self.path}/{candidates[0]}")
        what = "several skeletons" if of_subject else "no skeleton"
        raise InputError(f"{self.path}: {what} for the trial {trial}; expected one {subject}.asf.")

    def _file(self, trial: str) -> str:
        if trial not in self._motions:
            raise InputError(f"{self.path}: there is no trial {trial}.")
        return self._motions[trial]

    def positions(self, trial: str) -> Floats:
        """The joints' positions in a trial, (T, N, 3)."""
        name = self._file(trial)
        where = f"{self.path}/{name}"
        motion = parse_amc(self._read[name](), where)
        skeleton = self.skeleton(trial)
        try:
            with np.errstate(all="ignore"):
                x = skeleton.positions(motion)
            if not np.isfinite(x).all():  # invalid angles are not missing joints
                raise InputError("NaN or infinite values; mend or cut them out.")
            return x
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        except (KeyError, ValueError) as error:
            raise InputError(f"{where}: does not fit its skeleton ({reason(error)}).") from None


def read_mocap(path: Path, time_step: float = 1 / FRAMES_PER_SECOND) -> Trajectories:
    """Read all trials in a folder (or tar file) of ASF/AMC as runs of one skeleton.

    Positions are in the file's unit (for CMU, 1 is 5.644 cm), y points up, and trials may differ
    in length. Attributes name the joints and say which of them are connected by a bone.

    Args:
        path: of the folder or tar file.
        time_step: seconds between frames, which the files do not give; CMU has 120 per second.
    """
    files = MotionFiles(path)
    skeletons = {trial: files.skeleton(trial) for trial in files.trials}
    first = skeletons[files.trials[0]]
    for trial, skeleton in skeletons.items():
        if skeleton.joints != first.joints:
            raise InputError(f"{path}: the trial {trial} has other joints than {files.trials[0]}.")
    motions = [files.positions(trial) for trial in files.trials]
    return Trajectories.from_runs(
        motions,
        time_step=time_step,
        attributes=joint_attributes(first, len(motions)),
        meta=meta_of(first, files.trials),
    )


def joint_attributes(skeleton: Skeleton, num: int) -> dict[str, Any]:
    """The joint of each node, as one attribute per joint, and the pairs that a bone connects."""
    joints = skeleton.joints
    bones = np.zeros((len(joints), len(joints)))
    for child, parent in skeleton.edges:
        bones[child, parent] = bones[parent, child] = 1.0
    identity = {f"is_{name}": row for name, row in zip(joints, np.eye(len(joints)), strict=True)}
    return identity | {"bone": np.broadcast_to(bones, (num, *bones.shape))}


def meta_of(skeleton: Skeleton, trials: list[str]) -> dict[str, Any]:
    """The metadata that trajectories keep of a skeleton."""
    return {
        "source": "ASF/AMC",
        "trials": trials,
        "joints": skeleton.joints,
        "edges": skeleton.edges,
        "up": [0.0, 1.0, 0.0],
        "time_unit": "s",
        "length_unit": "ASF units",
    }


def _files(path: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """Names of the ASF and AMC files at any depth, each with a function that reads its text."""
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.suffix.lower() in MOTION_ENDINGS and (file.is_file() or file.is_symlink()):
                yield str(file.relative_to(path)).lower(), partial(_text, file)
        return
    try:
        for name, content in unpacked(path, MOTION_ENDINGS):
            yield name.lower(), partial(content.decode, "latin-1")
    except InputError:
        raise
    except Exception as error:  # (tar files can be damaged in many ways)
        raise InputError(
            f"{path}: expected a folder or a tar file of ASF/AMC ({reason(error)})."
        ) from error


def _text(file: Path) -> str:
    with open_regular(file, inside=True) as opened:
        check_memory(file.stat().st_size, file)  # a character may become a number
        return opened.read().decode("latin-1")


def _sections(text: str) -> dict[str, list[str]]:
    """The lines below each ``:keyword`` of an ASF file, without comments."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if line.startswith(":"):
            lines = sections.setdefault(line[1:].partition(" ")[0].lower(), [])
        elif line:
            lines.append(line)
    return sections


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """The blocks between ``begin`` and ``end``."""
    block: list[str] = []
    for line in lines:
        if line == "begin":
            block = []
        elif line == "end":
            yield block
        else:
            block.append(line)


def _numbers(words: list[str], count: int) -> list[float]:
    numbers = [float(word) for word in words]
    if len(numbers) != count or not np.isfinite(numbers).all():
        raise ValueError(f"expected {count} finite numbers, found {shortened(' '.join(words))}")
    return numbers


def _turned(angles: Sequence[float] | Sequence[Floats], degrees: bool) -> Floats:
    """The rotation by three angles."""
    return rotation(*(np.deg2rad(a) if degrees else np.asarray(a) for a in angles))
