"""Assign meanings to a table's columns, by their usual names or by names that the user gives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import check_name, shortened

# In order of preference, in lower case, with _ between words.
_USUAL = {
    "frame": (
        *("frame", "frame_id", "frameid", "frame_number", "framenumber", "frame_num", "frame_no"),
        *(
            "frame_index",
            "frame_idx",
            "frames",
            "timestep",
            "time_step",
            "step",
            "image",
            "image_id",
        ),
    ),
    "time": (
        *(
            "time",
            "t",
            "timestamp",
            "time_s",
            "time_sec",
            "seconds",
            "sec",
            "timestamps",
            "time_ms",
        ),
        *("timestamp_ms", "timestamp_s", "datetime", "date_time", "date", "position_t"),
    ),
    "id": (
        *("id", "agent_id", "track_id", "ped_id", "pedestrian_id", "person_id", "particle_id"),
        *("object_id", "node_id", "vehicle_id", "animal_id", "individual_id", "obj_id", "body_id"),
        *("agentid", "trackid", "pedid", "pedestrianid", "personid", "particleid", "objectid"),
        *("nodeid", "vehicleid", "ids", "agent", "track", "ped", "pedestrian", "person"),
        *("particle", "object", "node", "vehicle", "animal", "individual", "body", "bird", "fish"),
        *("player", "player_id", "individual_local_identifier", "tag", "tag_id", "name", "label"),
    ),
    "recording": (
        *("recording", "recording_id", "recordingid", "scene", "scene_id", "sceneid", "sequence"),
        *("sequence_id", "seq", "video", "video_id", "run", "run_id", "trial", "session", "clip"),
    ),
    "split": ("split", "subset"),
}
_POSITIONS = (
    *("{}", "pos_{}", "position_{}", "{}_pos", "{}_position", "pos{}", "p{}", "p_{}", "{}_m"),
    *("{}_coord", "coord_{}", "location_{}", "loc_{}", "world_{}", "{}_world", "center_{}"),
    *("{}_center", "centre_{}", "{}_centre"),
)
_VELOCITIES = (
    *("v{}", "vel_{}", "velocity_{}", "v_{}", "{}_vel", "{}_velocity", "vel{}", "velocity{}"),
    *("{}velocity", "{}vel"),
)
_ATTRIBUTES = ("mass", "charge", "radius")  # node constants with a fixed meaning
_DEGREES = ("lat", "latitude", "lon", "long", "longitude", "location_lat", "location_long")
# The columns of a table without a header.
BY_PLACE = ("frame", "id", "x", "y", "z")
_MOST_SHOWN = 12


@dataclass(frozen=True)
class Columns:
    """The names of a table's columns; what is not named is found by its usual names.

    Args:
        frame: the number of the frame, such as frame or frame_id.
        time: the time, a number or a date, such as t or timestamp; used if there is no frame.
        id: of the node that was observed: a number or a name, such as id, agent_id or track_id.
        positions: coordinates, such as x y, or pos_x pos_y pos_z.
        velocities: their rates, such as vx vy; without them, differences of positions are taken.
        attributes: numbers that models may read; without a name, only mass, charge and radius are.
        recording: which of several recordings a row belongs to, such as scene or video.
        split: train, val or test.
    """

    frame: str | None = None
    time: str | None = None
    id: str | None = None
    positions: tuple[str, ...] = ()
    velocities: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    recording: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class Found:
    """The columns of one table by their meaning, spelled as in the table.

    Args:
        frame: the column with the frame number or the time, whichever defines the grid.
        timed: whether that is the time.
        clock: the time given alongside a frame number, which tells how long a frame is.
        attributes: the column of each attribute, by the attribute's name.
        ignored: all others.
        units: of lengths and times, where the column names give them: ``x [m]``.
    """

    frame: str
    timed: bool
    id: str
    positions: tuple[str, ...]
    velocities: tuple[str, ...] = ()
    attributes: dict[str, str] = field(default_factory=dict)
    recording: str | None = None
    split: str | None = None
    clock: str | None = None
    ignored: tuple[str, ...] = ()
    units: dict[str, str] = field(default_factory=dict)

    def in_words(self) -> str:
        """How the columns were understood, for the user to check."""
        named = [
            ("time" if self.timed else "frame", (self.frame,)),
            ("id", (self.id,)),
            ("positions", self.positions),
            ("velocities", self.velocities),
            ("attributes", tuple(self.attributes.values())),
            ("recording", (self.recording,)),
            ("split", (self.split,)),
            ("time of a frame", (self.clock,)),
            ("ignored", self.ignored),
        ]
        parts = [f"{role}: {listed(names)}" for role, names in named if any(names)]
        return f"columns: {'; '.join(parts)}"

    def to_write(self) -> dict[str, str | list[str]]:
        """The column names that a table of forecasts keeps."""
        return {
            "time" if self.timed else "frame": self.frame,
            "id": self.id,
            "positions": list(self.positions),
            "velocities": list(self.velocities),
        }


def find_columns(names: Sequence[str], wanted: Columns) -> Found:
    """Find the columns of a table.

    Args:
        names: the names of its columns.
        wanted: the names given by the user.
    """
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if twice is not None:
        raise InputError(f"the column {shortened(twice)} stands twice; rename one.")
    by_plain: dict[str, str] = {}
    for name in names:
        by_plain.setdefault(plain(name), name)

    def given(role: str, name: str) -> str:
        if name in names:
            return name
        if plain(name) in by_plain:
            return by_plain[plain(name)]
        raise InputError(f"{role}: there is no column {shortened(name)}; there are {_some(names)}.")

    def usual(role: str) -> str | None:
        asked = getattr(wanted, role)
        if asked is not None:
            return given(role, asked)
        return next((by_plain[name] for name in _USUAL[role] if name in by_plain), None)

    def several(role: str, patterns: Sequence[str]) -> tuple[str, ...]:
        asked = getattr(wanted, role)
        if asked:
            return tuple(given(role, name) for name in asked)
        for pattern in patterns:
            found = [by_plain.get(pattern.format(axis)) for axis in "xyz"]
            if found[0] is not None and found[1] is not None:
                return tuple(name for name in found if name is not None)
        return ()

    positions = several("positions", _POSITIONS)
    if not positions:
        degrees = [by_plain[name] for name in _DEGREES if name in by_plain]
        if degrees:
            raise InputError(
                f"positions: {listed(degrees)} are angles, and no lengths; convert them to metres, "
                "for instance with UTM, and call them x and y."
            )
        raise InputError(
            f"positions: no columns are called x and y; there are {_some(names)}; name them "
            "(positions, on the command line --columns.positions)."
        )
    velocities = several("velocities", _VELOCITIES)
    if wanted.velocities and len(velocities) != len(positions):
        raise InputError(
            f"velocities: expected as many columns as positions, {len(positions)}, found "
            f"{listed(velocities)}."
        )
    velocities = velocities if len(velocities) == len(positions) else ()
    frame, time, node = usual("frame"), usual("time"), usual("id")
    frame = None if wanted.frame is None and wanted.time is not None else frame
    if frame is None and time is None:
        raise _missing("frame", "frame, t or time", names)
    if node is None:
        raise _missing("id", "id, agent_id or track_id", names)
    taken = wanted.attributes or tuple(n for n in _ATTRIBUTES if n in by_plain)
    attributes = {
        check_name(plain(name), "attributes"): given("attributes", name) for name in taken
    }
    grid = frame if frame is not None else time
    assert grid is not None
    found = Found(
        grid,
        frame is None,
        node,
        positions,
        velocities,
        attributes,
        usual("recording"),
        usual("split"),
        time if frame is not None else None,
        units=_units(positions[0], time),
    )
    return _complete(found, names)


def _complete(found: Found, names: Sequence[str]) -> Found:
    """Reject a column with two meanings, and list those without any."""
    roles = [found.frame, found.id, *found.positions, *found.velocities]
    roles += [*found.attributes.values()]
    roles += [name for name in (found.recording, found.split, found.clock) if name is not None]
    twice = next((name for name in roles if roles.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"the column {shortened(twice)} cannot be two things at once.")
    values = {entry.name: getattr(found, entry.name) for entry in fields(found)}
    return Found(**values | {"ignored": tuple(name for name in names if name not in roles)})


def plain(name: str) -> str:
    """A column's name in lower case, with _ between words and without its unit."""
    without, _ = _split_unit(name)
    return re.sub(r"\W+", "_", without.strip().lower()).strip("_")


def listed(names: Iterable[str | None]) -> str:
    """Join names for a message."""
    return ", ".join(shortened(name)[1:-1] for name in names if name is not None)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_SHOWN
    return listed(names[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _missing(role: str, usual: str, names: Sequence[str]) -> InputError:
    return InputError(
        f"{role}: no column is called {usual}; there are {_some(names)}; name it ({role}, on the "
        f"command line --columns.{role})."
    )


def _split_unit(name: str) -> tuple[str, str | None]:
    """Split ``x [m]`` or ``x (m)`` into the name x and the unit m."""
    match = re.fullmatch(r"(.+?)\s*[\[(]([^\[\]()]{1,20})[\])]", name.strip())
    return (match[1], match[2].strip()) if match else (name, None)


def _units(position: str, time: str | None) -> dict[str, str]:
    units = {"length_unit": _split_unit(position)[1], "time_unit": _split_unit(time or "")[1]}
    return {what: unit for what, unit in units.items() if unit}
