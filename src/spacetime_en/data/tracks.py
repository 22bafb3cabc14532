"""From observations to trajectories: a grid of frames, and slots that nodes occupy in turn.

The grid's step is the most common gap between frame numbers, or between the times of a node's
observations. Every observation goes to the nearest grid frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError, amount
from spacetime_en.data.limits import check_memory
from spacetime_en.data.slots import NOBODY, assign_slots
from spacetime_en.data.valid import check_single_precision, check_time_step

if TYPE_CHECKING:
    from spacetime_en.data.observations import Observations
    from spacetime_en.data.trajectories import LazyArray, Trajectories

LONGEST_RECORDING = 1_500_000  # frames; the times of this many fit the facts of a data set
_AT_ONCE = 1 << 20  # rows
_COMMON = 0.2  # the share of gaps above which a gap is no accident
_OFF = 1e-3  # fraction of a step: an observation nearer to a frame is exactly at it


def pack(
    observations: Observations,
    *,
    time_step: float | None = None,
    frame_step: float | None = None,
    interpolate: int = 0,
    meta: dict[str, Any] | None = None,
) -> Trajectories:
    """Put observations on a grid of frames, and nodes into slots.

    If every node is observed in every frame of every recording, node i is slot i (no ``ids``);
    otherwise a node has a slot from its first observation to its last. ``meta["notes"]`` says how
    the data were understood.

    Args:
        observations: consumed, so that only one copy is in memory.
        time_step: time between frames of the grid; None: from the times, else from fitting
            positions to velocities, else the frame numbers are times.
        frame_step: frame numbers, or time, between frames; None: the most common.
        interpolate: fill gaps of up to this many frames by linear interpolation.
        meta: further entries.
    """
    from spacetime_en.data.trajectories import DIFFERENCES, Trajectories

    o = observations
    grid = _find_grid(o, frame_step)  # rows without a position also count as frames
    grid, kept = _drop_unseen(o, grid)
    _drop_velocities(o)
    _check_attributes(o, kept)
    tracks = _sort(o, grid, kept)
    dt, how = _time_of_a_step(o, grid, tracks, time_step)
    measured, n = bool(o.velocities), len(o.positions)
    if grid.frames == 1 and not measured:
        raise InputError(
            f"{o.tables[0].where}: all rows are of one frame; differences need two, or velocities."
        )
    fill = _gaps_to_fill(tracks, interpolate)
    fixed = _is_fixed(tracks, grid, fill, o)
    slots = tracks.node if fixed else _slots(tracks, len(o.recordings))
    layout = _Layout((len(o.recordings), grid.frames, int(slots.max()) + 1), tracks, slots, fill)
    check_memory(math.prod(layout.shape) * n, f"{grid.frames:,} frames of all recordings")
    x, v = np.zeros((*layout.shape, n)), np.zeros((*layout.shape, n))
    for d, along in enumerate(o.positions):
        layout.write(along, x.reshape(-1, n)[:, d])
        if measured:
            layout.write(o.velocities[d], v.reshape(-1, n)[:, d])
        else:
            layout.write(_differences(along, tracks, dt), v.reshape(-1, n)[:, d], until_next=True)
    o.positions, o.velocities = [], []
    check_single_precision("x", x)
    check_single_precision("v", v)
    constant, changing = _attributes(o, tracks, layout, fixed)
    if fixed:
        for run, length in enumerate(grid.lengths.tolist()):  # the last frame is the padding
            x[run, length:] = x[run, length - 1]
    facts: dict[str, Any] = {
        "recordings": o.recordings,
        "first_frames": grid.first.astype(np.int64 if grid.whole else np.float64).tolist(),
        "columns": o.columns.to_write(),
        **o.columns.units,
        "notes": [*o.notes, *_in_words(o, grid, tracks, layout)],
    }
    if o.named or (fixed and o.nodes != list(range(len(o.nodes)))):
        facts["node_names"] = [str(node) for node in o.nodes]
    facts |= {"splits": o.splits} if o.splits else {}
    facts |= {} if measured else {"velocities": DIFFERENCES}
    facts |= {"time_step": how} if how else {}
    return Trajectories(
        x,
        v,
        np.arange(grid.frames) * (int(grid.step) if grid.whole else 1),
        np.arange(grid.frames) * np.float64(dt),
        constant,
        facts | (meta or {}),
        lengths=None if (grid.lengths == grid.frames).all() else grid.lengths,
        observed=None if fixed else layout.observed(),
        ids=None
        if fixed
        else layout.ids(np.arange(len(o.nodes)) if o.named else np.array(o.nodes)),
        frame_attributes=changing,
    )


# --- observed rows ------------------------------------------------------------------------------


def _drop_unseen(o: Observations, grid: _Grid) -> tuple[_Grid, NDArray[np.int64] | None]:
    """Drop rows without a position, and recordings with no other rows.

    Returns: the grid of the remaining recordings, and the rows that are kept (None: all).
    """
    seen = np.isfinite(o.positions[0])
    for positions in o.positions[1:]:
        seen &= np.isfinite(positions)
    if seen.all():
        return grid, None
    missing = len(seen) - int(seen.sum())
    if missing == len(seen):
        raise InputError(f"{o.tables[0].where}: no row has a position; all are NaN or missing.")
    o.notes.append(
        f"{amount(missing, 'row')} with NaN, infinite or missing positions: not observed"
    )
    o.positions = [positions[seen] for positions in o.positions]
    o.velocities = [velocities[seen] for velocities in o.velocities]
    o.attributes = {name: values[seen] for name, values in o.attributes.items()}
    o.frame, o.node, recording = o.frame[seen], o.node[seen], o.recording[seen]
    o.clock = None if o.clock is None else o.clock[seen]
    persons, nodes = np.unique(o.node, return_inverse=True)
    o.node = nodes.astype(np.int32)
    o.nodes = [o.nodes[i] for i in persons]
    there, codes = np.unique(recording, return_inverse=True)
    o.recording = codes.astype(np.int32)
    o.recordings = [o.recordings[i] for i in there]
    o.splits = None if o.splits is None else [o.splits[i] for i in there]
    grid = replace(grid, first=grid.first[there], lengths=grid.lengths[there])
    return grid, np.flatnonzero(seen)


def _row(kept: NDArray[np.int64] | None, row: int) -> int:
    return row if kept is None else int(kept[row])


def _drop_velocities(o: Observations) -> None:
    """If some rows lack velocities, take them all from differences."""
    bad = sum(int((~np.isfinite(velocities)).sum()) for velocities in o.velocities)
    if bad:
        o.notes.append(f"velocities: {bad:,} are missing; differences of positions are taken")
        o.velocities = []


def _check_attributes(o: Observations, kept: NDArray[np.int64] | None) -> None:
    """Reject observations without a number for an attribute."""
    for name, values in o.attributes.items():
        missing = ~np.isfinite(values)
        if missing.any():
            raise InputError(f"{o.place(_row(kept, int(missing.argmax())))}: {name}: is missing.")


# --- the grid -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Grid:
    """The frames of all recordings.

    Args:
        first: frame number or time of each recording's first frame, (R,).
        step: from frame to frame.
        whole: whether these are integers.
        lengths: number of frames of each recording, (R,).
    """

    first: NDArray[np.float64]
    step: float
    whole: bool
    lengths: NDArray[np.int64]

    @property
    def frames(self) -> int:
        return int(self.lengths.max())


def _find_grid(o: Observations, given: float | None) -> _Grid:
    R = len(o.recordings)
    first, last = np.full(R, np.inf), np.full(R, -np.inf)
    np.minimum.at(first, o.recording, o.frame)
    np.maximum.at(last, o.recording, o.frame)
    whole = not o.timed and bool((o.frame == np.floor(o.frame)).all())
    if given is not None:
        step = _check_step(given)
        whole = whole and step == np.floor(step)
    elif whole:
        step = _commonest(_gaps(o.recording, o.frame))
    else:  # nodes' clocks may be unrelated
        step = _regular(_gaps(o.recording.astype(np.int64) * len(o.nodes) + o.node, o.frame))
    frames = np.rint((last - first) / step) + 1
    if frames.max() > LONGEST_RECORDING or np.abs(o.frame).max() > 2**53:
        run = int(frames.argmax())
        what = "time" if o.timed else "frame"
        raise InputError(
            f"{o.columns.frame}: from {first[run]:.12g} to {last[run]:.12g} in steps of {step:g} "
            f"there are {frames[run]:.3g} frames, and {LONGEST_RECORDING:,} are the most; is it "
            f"the column of the {what}? Else give a larger frame_step, or cut the recording."
        )
    return _Grid(first, step, whole, frames.astype(np.int64))


def _check_step(step: float) -> float:
    try:
        return check_time_step(step)
    except InputError as error:
        raise InputError(str(error).replace("time_step", "frame_step", 1)) from None


def _gaps(group: NDArray[Any], frame: NDArray[np.float64]) -> NDArray[np.float64]:
    """Positive differences between consecutive frames in a group."""
    order = np.lexsort((frame, group))
    gaps = np.diff(frame[order])
    gaps[np.diff(group[order]) != 0] = 0
    return gaps[gaps > 0]


def _commonest(gaps: NDArray[np.float64]) -> float:
    """The most common gap, the smallest in case of a tie; 1 if there is none."""
    if len(gaps) == 0:
        return 1.0
    values, counts = np.unique(gaps, return_counts=True)
    return float(values[counts.argmax()])


def _regular(gaps: NDArray[np.float64]) -> float:
    """The step of a clock with jitter, from gaps of one or several steps."""
    if len(gaps) == 0:
        return 1.0
    typical = float(np.median(gaps))
    ratios = np.round(gaps / typical, 2)
    common = max(_commonest(ratios), 0.01)
    about = typical * (common if (ratios == common).mean() > _COMMON else 1.0)
    counts = np.rint(gaps / about)
    if (np.abs(gaps - counts * about) <= 1e-6 * about).all():
        return float(f"{about:.12g}")
    return float(gaps.sum() / max(counts.sum(), 1))  # errors of single gaps cancel


# --- tracks ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tracks:
    """Observations sorted by recording, node and frame: P tracks of M observations in all.

    Args:
        cell: the grid frame of each observation, (M,).
        of: its track, (M,).
        start: where each track starts, (P,).
        recording, node, first, last: of each track, (P,).
        backward: how many rows come after a later one of the same node.
        moved: how many observations were not at a grid frame, and by how much at most.
        dropped: how many were dropped because another was nearer to the frame.
    """

    cell: NDArray[np.int32]
    of: NDArray[np.int32]
    start: NDArray[np.int64]
    recording: NDArray[np.int64]
    node: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    backward: int
    moved: tuple[int, float]
    dropped: int


def _sort(o: Observations, grid: _Grid, kept: NDArray[np.int64] | None) -> _Tracks:
    """Sort the columns of the observations by recording, node and frame."""
    T, P = grid.frames, len(o.nodes)
    off = o.frame - grid.first[o.recording]
    off /= grid.step
    key = np.rint(off).astype(np.int64)
    off -= key
    np.abs(off, out=off)
    moved = int((off > _OFF).sum()), float(off.max())
    key += o.recording * np.int64(P * T)
    key += o.node * np.int64(T)
    order = np.argsort(key, kind="stable")
    key = key[order]
    keep = _nearest(o, key, order, off, kept)
    del off
    dropped = 0 if keep is None else len(order) - int(keep.sum())
    if keep is not None:
        key, order = key[keep], order[keep]
    empty = np.empty(0)
    o.frame, o.node, o.recording = empty, empty.astype(np.int32), empty.astype(np.int32)
    for columns in (o.positions, o.velocities):
        for d, column in enumerate(columns):
            columns[d] = column[order]
    o.attributes = {name: values[order] for name, values in o.attributes.items()}
    o.clock = None if o.clock is None else o.clock[order]
    who = key // T
    start = np.flatnonzero(np.diff(who, prepend=-1))
    persons, lengths = who[start], np.diff(start, append=len(key))
    key -= who * T
    cell = key.astype(np.int32)
    del who, key
    of = np.repeat(np.arange(len(start), dtype=np.int32), lengths)
    backward = int(((np.diff(order) < 0) & (np.diff(of) == 0)).sum())
    ends = start + lengths - 1
    return _Tracks(
        cell,
        of,
        start,
        persons // P,
        persons % P,
        cell[start].astype(np.int64),
        cell[ends].astype(np.int64),
        backward,
        moved,
        dropped,
    )


def _nearest(
    o: Observations,
    key: NDArray[np.int64],
    order: NDArray[np.int64],
    off: NDArray[np.float64],
    kept: NDArray[np.int64] | None,
) -> NDArray[np.bool_] | None:
    """Mask of the observations to keep, the nearest to each frame; None: all.

    Two observations of a node at the same time are an error.
    """
    same = key[1:] == key[:-1]
    if not same.any():
        return None
    several = np.zeros(len(key), dtype=bool)
    several[1:] |= same
    several[:-1] |= same
    index = np.flatnonzero(several)
    rows = order[index]
    frames = o.frame[rows]
    sort = np.lexsort((rows, frames, key[index]))
    twice = (np.diff(key[index][sort]) == 0) & (np.diff(frames[sort]) == 0)
    if twice.any():
        at = int(twice.argmax())
        a, b = sorted((_row(kept, int(rows[sort[at]])), _row(kept, int(rows[sort[at + 1]]))))
        node, frame = o.nodes[o.node[rows[sort[at]]]], frames[sort[at]]
        raise InputError(
            f"{o.place(b)}: a second row for id {node} at {o.columns.frame} {frame:.12g}, after "
            f"{o.place(a).rpartition(', ')[2]}; keep one."
        )
    sort = np.lexsort((off[rows], key[index]))
    keep = ~several
    best = np.diff(key[index][sort], prepend=-1) != 0
    keep[index[sort[best]]] = True
    return keep


def _slots(tracks: _Tracks, recordings: int) -> NDArray[np.int64]:
    """The slot of each track, (P,)."""
    ends = np.searchsorted(tracks.recording, np.arange(recordings + 1))
    parts = [assign_slots(tracks.first[a:b], tracks.last[a:b]) for a, b in pairwise(ends)]
    return np.concatenate(parts)


def _is_fixed(tracks: _Tracks, grid: _Grid, fill: _Gaps, o: Observations) -> bool:
    """Whether every node is observed in every frame of every recording."""
    everybody = len(tracks.start) == len(o.nodes) * len(o.recordings)
    there = len(tracks.cell) + len(fill.row)
    return everybody and there == len(o.nodes) * int(grid.lengths.sum())


@dataclass(frozen=True)
class _Gaps:
    """Frames without an observation that are filled in.

    Args:
        row: the observation before, an index into those of the tracks.
        ahead: how many frames after it.
        share: fraction of the way to the next observation.
        count, longest: of all gaps, including those that stay open.
    """

    row: NDArray[np.int64]
    ahead: NDArray[np.int64]
    share: NDArray[np.float64]
    count: int
    longest: int


def _gaps_to_fill(tracks: _Tracks, interpolate: int) -> _Gaps:
    gaps = np.diff(tracks.cell) - 1
    gaps[tracks.start[1:] - 1] = 0
    row = np.flatnonzero((gaps > 0) & (gaps <= interpolate))
    lengths = gaps[row]
    rows = np.repeat(row, lengths)
    ahead = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
    share = ahead / (np.repeat(lengths, lengths) + 1)
    longest = int(gaps.max()) if len(gaps) else 0
    return _Gaps(rows, ahead, share, int((gaps > 0).sum()), longest)


@dataclass(frozen=True)
class _Layout:
    """The places of observations in arrays of all recordings, frames and slots.

    Args:
        shape: (R, T, N).
        slots: of each track, (P,).
    """

    shape: tuple[int, int, int]
    tracks: _Tracks
    slots: NDArray[np.int64]
    fill: _Gaps

    def into(self, rows: slice | NDArray[np.int64]) -> NDArray[np.int64]:
        """Flat indices of observations, over all recordings, frames and slots."""
        _, T, N = self.shape
        track = self.tracks.recording * (T * N) + self.slots
        places: NDArray[np.int64] = track[self.tracks.of[rows]] + self.tracks.cell[rows] * N
        return places

    @cached_property
    def filled(self) -> NDArray[np.int64]:
        """Flat indices of the frames that are filled in."""
        return self.into(self.fill.row) + self.fill.ahead * self.shape[2]

    def write(self, values: NDArray[Any], out: NDArray[Any], until_next: bool = False) -> None:
        """Write values of the tracks' observations, (M,), to `out`, (R T N,).

        Between observations they are interpolated linearly or, for `until_next`, are already the
        next value.
        """
        for start in range(0, len(values), _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            out[self.into(rows)] = values[rows]
        before, after = values[self.fill.row], values[self.fill.row + 1]
        share = 1.0 if until_next else self.fill.share
        out[self.filled] = before + (after - before) * share

    def observed(self) -> NDArray[np.bool_]:
        """True where there is an observation or a gap is filled, (R, T, N)."""
        observed = np.zeros(self.shape, dtype=bool)
        self.write(np.ones(len(self.tracks.cell)), observed.reshape(-1))
        return observed

    def ids(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the node in each slot, (R, T, N)."""
        t, ids = self.tracks, np.full(self.shape, NOBODY, dtype=np.int64)
        for run, number, slot, first, last in zip(
            t.recording, numbers[t.node], self.slots, t.first, t.last, strict=True
        ):
            ids[run, first : last + 1, slot] = number
        return ids


def _attributes(
    o: Observations, tracks: _Tracks, layout: _Layout, fixed: bool
) -> tuple[dict[str, LazyArray], dict[str, LazyArray]]:
    """Attributes that belong to nodes, (R, N), and those that change or come and go, (R, T, N)."""
    constant: dict[str, LazyArray] = {}
    changing: dict[str, LazyArray] = {}
    for name, values in o.attributes.items():
        firsts = values[tracks.start]
        if fixed and (values == firsts[tracks.of]).all():
            constant[name] = firsts.reshape(layout.shape[0], layout.shape[2])
        else:
            array = np.zeros(layout.shape)
            layout.write(values, array.reshape(-1))
            changing[name] = array
    return constant, changing


# --- times and velocities -------------------------------------------------------------------------


def _time_of_a_step(
    o: Observations, grid: _Grid, tracks: _Tracks, given: float | None
) -> tuple[float, str | None]:
    """The time between frames, and, if it was guessed, how."""
    if given is not None:
        return check_time_step(given), None
    if o.timed:
        return grid.step, None
    inside = np.diff(tracks.of) == 0  # pairs of consecutive observations of a node
    steps = np.diff(tracks.cell)
    if o.clock is not None:
        ratios = (np.diff(o.clock) / np.maximum(steps, 1))[inside]
        ratios = ratios[np.isfinite(ratios)]
        time = float(np.median(ratios)) if len(ratios) else 0.0
        if time > 0:
            return float(f"{time:.9g}"), f"from the column {o.columns.clock}"
        o.notes.append(f"{o.columns.clock}: tells no time between frames, and is not used")
    if o.velocities:
        moved, squared = 0.0, 0.0
        with np.errstate(all="ignore"):  # overflow is caught when values are checked
            for positions, velocities in zip(o.positions, o.velocities, strict=True):
                way = ((velocities[1:] + velocities[:-1]) / 2 * steps)[inside]
                moved += float((np.diff(positions)[inside] * way).sum())
                squared += float((way * way).sum())
            fitted = moved / max(squared, 1e-300)
        if 0 < fitted < np.inf:
            return fitted, "fitted to positions and velocities"
    return grid.step, None


def _differences(along: NDArray[np.float64], tracks: _Tracks, dt: float) -> NDArray[np.float64]:
    """Velocities of the tracks' observations, backward; the first copies the second's, (M,)."""
    rates = np.zeros(len(along))
    with np.errstate(all="ignore"):  # overflow is caught when values are checked
        np.subtract(along[1:], along[:-1], out=rates[1:])
        times = (np.arange(tracks.last.max() + 1) * dt)[tracks.cell]
        rates[1:] /= np.diff(times)  # (meaningless where a track starts)
    single = tracks.first == tracks.last
    rates[tracks.start] = np.where(single, 0.0, rates[np.minimum(tracks.start + 1, len(along) - 1)])
    return rates


# --- messages -----------------------------------------------------------------------------------


def _in_words(o: Observations, grid: _Grid, tracks: _Tracks, layout: _Layout) -> list[str]:
    """How the data were understood."""
    fill, slots = layout.fill, layout.shape[2]
    span = int((tracks.last - tracks.first + 1).sum())
    share = (len(tracks.cell) + len(fill.row)) / span
    total, longest = int(grid.lengths.sum()), int(grid.lengths.max())
    unit = "in time" if o.timed else ("frame numbers" if grid.step != 1 else "frame number")
    notes = [
        f"{amount(len(o.recordings), 'recording')}, {amount(len(tracks.start), 'node')}, at most "
        f"{slots:,} at a time; {amount(total, 'frame')}"
        + (f", {longest:,} in the longest recording" if len(o.recordings) > 1 else "")
        + f", {grid.step:g} {unit} apart",
        f"observed: {_percent(share)} of the frames from each node's first to its last; "
        + (
            f"{amount(fill.count, 'gap')}, the longest of {amount(fill.longest, 'frame')}"
            + (f"; {amount(len(fill.row), 'frame')} filled in" if len(fill.row) else "")
            if fill.count
            else "no gaps"
        ),
    ]
    if o.splits:
        counts = {split: o.splits.count(split) for split in ("train", "val", "test")}
        notes.append("splits: " + ", ".join(f"{split} {n:,}" for split, n in counts.items()))
    if tracks.backward:
        notes.append(f"times go back at {amount(tracks.backward, 'row')}: sorted")
    if tracks.moved[0]:
        notes.append(
            f"{amount(tracks.moved[0], 'row')} between frames, by up to {tracks.moved[1]:.2g} of a "
            "step: put on the nearest frame"
        )
    if tracks.dropped:
        notes.append(
            f"{amount(tracks.dropped, 'row')} left out: another of the same node is nearer to the "
            "frame"
        )
    return notes


def _percent(share: float) -> str:
    """Format a fraction as a percentage that is 100 % only if nothing is missing."""
    return "100 %" if share == 1 else f"{min(100 * share, 99.9):.1f} %"
