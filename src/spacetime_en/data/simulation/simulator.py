"""Simulate trajectories, each from its own random stream, in any number of shards."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError, no_such
from spacetime_en._util.files import refuse_foreign
from spacetime_en._util.machine import free_memory, free_room, in_words
from spacetime_en._util.schema import PositiveInt, checked, shortened
from spacetime_en.data.rng import Streams
from spacetime_en.data.shards import ShardWriter, find_shards, read_meta, shard_name
from spacetime_en.data.simulation import integrator
from spacetime_en.data.simulation.drift import drift
from spacetime_en.data.simulation.simd import W
from spacetime_en.data.simulation.systems import Attributes, System, find_system
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.valid import MOST_STEPS
from spacetime_en.metrics import summary

PAPER_STEPS = (*range(0, 100, 10), 10_090)  # ten frames, ten steps apart, and the target
MOST_SAVED_FRAMES = 1 << 24
_CHUNK_BYTES = 1 << 27

Progress = Callable[[int], None]


@checked
def simulate(
    system: str | System,
    num: PositiveInt,
    *,
    nodes: PositiveInt = 5,
    dims: int = 3,
    steps: int | None = None,
    save: Sequence[int] | None = None,
    seed: int = 0,
    scheme: str = "kick-drift",
    shard: tuple[int, int] | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: str = "local",
    progress: Progress | None = None,
) -> Trajectories:
    """Simulate `num` trajectories.

    Trajectory i is drawn from a counter-based stream keyed by (seed, i) and computed independently
    of all others: bit-identical for any number of threads, chunks or shards.

    Args:
        system: ``"charged"``, ``"gravity"``, ``"springs"``, or a :class:`System` of your own.
        num: how many.
        nodes: N.
        dims: 2 or 3.
        steps: number of time steps; None: up to the last of `save`.
        save: step counts at which to keep the state, 0 being the start. None: every 100th up to
            `steps`; with neither, those of the paper's task.
        seed: one number for everything.
        scheme: ``"kick-drift"`` (the paper's), ``"verlet"``, or ``"adaptive"`` (fourth order, with
            smaller steps in close encounters, forces not clipped).
        shard: (i, n) simulates only the i-th of n parts.
        out: a folder to write to, in shards of limited size; existing shards are kept. Needs no
            more memory than a chunk.
        engine: ``"local"``, all cores of this machine, or ``"ray"``, shards on a Ray cluster (the
            extra ``ray``; needs `out` on a file system that all workers see).
        progress: called with the number of trajectories finished since the last call.
    Returns: the trajectories; with `out`, mapped from disk (an empty set, as long as other shards
        are missing).
    """
    chosen = find_system(system)
    frames = _frames(steps, save)
    if not 0 <= seed < 1 << 64:
        raise InputError(f"seed: expected a whole number, at least 0, found {shortened(seed)}.")
    if dims not in (2, 3):
        raise InputError(f"dims: expected 2 or 3, found {shortened(dims)}.")
    if scheme not in integrator.SCHEMES:
        raise no_such("scheme", scheme, integrator.SCHEMES)
    if engine not in ("local", "ray"):
        raise InputError(f"engine: expected 'local' or 'ray', found {engine!r}.")
    if shard is not None and not 0 <= shard[0] < shard[1] <= num:
        raise InputError(
            f"shard: expected i/n with 0 <= i < n <= num, found {shard[0]}/{shard[1]}."
        )
    run = _Simulation(chosen, num, nodes, dims, frames, seed, scheme)
    run.check_size(shard or (0, 1), None if out is None else Path(out))
    if out is None:
        if engine == "ray":
            raise InputError("out: the ray engine writes shards; give a folder that all see.")
        return run.part(*(shard or (0, 1)), progress=progress)
    folder = Path(out)
    refuse_foreign(folder, "data set", "shard-*-of-*")
    there = {int(path.name.rsplit("-", 1)[1]) for path in find_shards(folder)}
    parts = num if shard is None else shard[1]
    if len(there) > 1 or max(there, default=parts) > parts or (shard and there - {parts}):
        raise InputError(
            f"{folder}: holds shards of a set in {min(there)} parts; go on with that number, or "
            "choose another folder."
        )
    if shard is not None:
        run.write(folder, *shard, progress=progress)
        whole = len(find_shards(folder)) == shard[1]
        return Trajectories.open(folder) if whole else run.empty()
    count = there.pop() if there else max(1, math.ceil(num / run.chunk))
    if engine == "ray":
        from spacetime_en.data.simulation.ray import write_shards

        write_shards(run, folder, count, progress)
    else:
        for i in range(count):
            run.write(folder, i, count, progress=progress)
    return Trajectories.open(folder)


def _frames(steps: int | None, save: Sequence[int] | None) -> NDArray[np.int64]:
    if steps is not None and not 0 <= steps <= MOST_STEPS:
        raise InputError(f"steps: expected 0 to {MOST_STEPS:,}, found {shortened(steps)}.")
    if save is None and steps is not None and steps // 100 > MOST_SAVED_FRAMES:
        raise InputError(
            f"steps: every 100th of {steps:,} steps is too many to keep; say which, with save."
        )
    if save is None:
        save = PAPER_STEPS if steps is None else sorted({*range(0, steps, 100), steps})
    if any(step != int(step) for step in save):
        raise InputError("save: expected whole numbers of steps.")
    if any(not 0 <= step <= MOST_STEPS for step in save):
        raise InputError(f"save: expected steps from 0 to {MOST_STEPS:,}.")
    frames = np.array(list(save), dtype=np.int64)
    if len(frames) == 0 or frames[0] < 0 or (np.diff(frames) <= 0).any():
        raise InputError("save: expected increasing numbers of steps, from 0 on.")
    if steps is not None and frames[-1] > steps:
        raise InputError(f"save: asks for step {frames[-1]}, but steps is {steps}.")
    return frames


@dataclass(frozen=True)
class _Simulation:
    """One simulation, cut into parts."""

    system: System
    num: int
    nodes: int
    dims: int
    frames: NDArray[np.int64]
    seed: int
    scheme: str

    @property
    def chunk(self) -> int:
        """The number of trajectories held in memory, with several copies of their couplings."""
        bytes_each = 32 * len(self.frames) * self.nodes * 3 + 40 * self.nodes**2
        return max(W, _CHUNK_BYTES // bytes_each // W * W)

    def check_size(self, part: tuple[int, int], out: Path | None) -> None:
        """Refuse what this machine cannot hold, before trying."""
        T, N = len(self.frames), self.nodes
        what = f"{N:,} nodes and {T:,} frames"
        least = W * (48 * T * N + 4 * N * N)  # states kept, and couplings, of the runs in flight
        if least > free_memory():
            raise InputError(
                f"nodes: {what} need {in_words(least)} of memory, and there are "
                f"{in_words(free_memory())}."
            )
        wanted = len(self.span(*part)) * 16 * T * N * self.dims  # positions and velocities
        if out is None and wanted > free_memory():
            raise InputError(
                f"num: {self.num:,} trajectories of {what} need {in_words(wanted)} of memory, and "
                f"there are {in_words(free_memory())}; write them to a folder (out)."
            )
        if out is not None and wanted > free_room(out) and not find_shards(out):
            raise InputError(
                f"num: {self.num:,} trajectories of {what} take {in_words(wanted)}, and {out} has "
                f"room for {in_words(free_room(out))}."
            )

    @property
    def meta(self) -> dict[str, Any]:
        from importlib.metadata import version

        system = self.system
        law: Any = system.law
        if not isinstance(law, int):  # a hash of the user's function
            code = law.__code__.co_code + repr(law.__code__.co_consts).encode()
            law = hashlib.sha256(code).hexdigest()[:16]
        return {
            "system": system.name,
            "law": law,
            "parameter": system.parameter,
            "max_force": None if np.isinf(system.max_force) else system.max_force,
            "dt": system.dt,
            "num": self.num,
            "nodes": self.nodes,
            "dims": self.dims,
            "seed": self.seed,
            "scheme": self.scheme,
            "version": version("spacetime-en"),
        }

    def empty(self) -> Trajectories:
        nothing = np.zeros((0, len(self.frames), self.nodes, self.dims))
        return self._trajectories(nothing, nothing, {})

    def part(self, i: int, n: int, progress: Progress | None = None) -> Trajectories:
        """The i-th of n equal parts, in memory."""
        pieces = list(self._pieces(i, n, progress))
        x, v = (np.concatenate([np.asarray(getattr(p, k)) for p in pieces]) for k in ("x", "v"))
        names = pieces[0].attributes
        attributes = {k: np.concatenate([p.attributes[k] for p in pieces]) for k in names}
        return self._trajectories(x, v, attributes)

    def write(self, folder: Path, i: int, n: int, progress: Progress | None = None) -> None:
        """Write the i-th of n shards piece by piece, unless it already exists."""
        num = len(self.span(i, n))
        target = folder / shard_name(i, n)
        if target.exists():
            self._check_same(folder, target)
            if progress:
                progress(num)
            return
        changes = []
        with ShardWriter(folder, i, n, num) as shard:
            for piece in self._pieces(i, n, progress):
                shard.append(piece)
                changes.append(drift(self.system, piece))
            if len(self.frames) > 1:
                shard.statistics = {
                    name: summary(torch.from_numpy(np.concatenate([c[name] for c in changes])))
                    for name in changes[0]
                }

    def span(self, i: int, n: int) -> range:
        """The indices of the i-th of n parts."""
        return range(self.num * i // n, self.num * (i + 1) // n)

    def _pieces(self, i: int, n: int, progress: Progress | None) -> Iterator[Trajectories]:
        """The i-th of n parts, in pieces of limited size."""
        # Often enough for a live display and prompt interruption, rarely enough to cost nothing.
        pairs = max(1, self.nodes * (self.nodes - 1) // 2) * int(self.frames[-1] or 1)
        size = min(self.chunk, max(W, (1 << 29) // pairs // W * W))
        whole = self.span(i, n)
        for start in range(whole.start, whole.stop, size):
            index = range(start, min(start + size, whole.stop))
            yield self._trajectories(*self._integrate(index))
            if progress:
                progress(len(index))

    def _check_same(self, folder: Path, target: Path) -> None:
        spec = read_meta(target).spec
        same = {"version": self.meta["version"]}  # data of an older version are equally valid
        if (spec.meta | same, spec.steps) != (self.meta, self.frames.tolist()):
            raise InputError(f"{folder}: holds another data set; choose another folder.")

    def _trajectories(self, x: Any, v: Any, attributes: Any) -> Trajectories:
        times = (self.frames * self.system.dt).astype(np.float64)
        return Trajectories(x, v, self.frames, times, attributes, self.meta)

    def _integrate(self, index: range) -> tuple[NDArray[Any], NDArray[Any], Attributes]:
        """The trajectories of `index`: x, v (num, T, N, n) and their attributes."""
        streams = Streams(self.seed)
        starts = [self.system.start(streams.at(i), self.nodes, self.dims) for i in index]
        x, v = np.stack([s[0] for s in starts]), np.stack([s[1] for s in starts])
        attributes = {name: np.stack([start[2][name] for start in starts]) for name in starts[0][2]}
        return *integrate(self.system, x, v, attributes, self.frames, self.scheme), attributes


def integrate(
    system: System,
    x: NDArray[Any],
    v: NDArray[Any],
    attributes: Attributes,
    frames: NDArray[np.int64],
    scheme: str = "kick-drift",
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Integrate given initial states.

    Args:
        x, v: (num, N, n), n up to 3.
        attributes: by name, (num, N) or (num, N, N).
        frames: step counts at which to keep the state, (T,).
    Returns: x and v, (num, T, N, n).
    """
    num, N, n = x.shape
    w = system.coupling(attributes, (num, N))
    inverse_mass = 1 / attributes["mass"] if "mass" in attributes else np.ones((num, N))
    below = np.tril_indices(N, -1)
    blocks = -(-num // W)

    def rows(per_run: NDArray[Any]) -> NDArray[Any]:
        """(num, k) -> (blocks, k W): W runs in parallel; the last block is padded with copies."""
        filled = np.concatenate([per_run, np.repeat(per_run[-1:], blocks * W - num, axis=0)])
        return np.ascontiguousarray(
            filled.reshape(blocks, W, -1).transpose(0, 2, 1), dtype=np.float64
        ).reshape(blocks, -1)

    def flat(vectors: NDArray[Any]) -> NDArray[Any]:
        return rows(np.pad(vectors, ((0, 0), (0, 0), (0, 3 - n))).reshape(num, 3 * N))

    out = np.empty((2, blocks, len(frames), 3 * N * W))
    builtin = isinstance(system.law, int)
    compiled = integrator.integrator(scheme, None if builtin else system.law)
    # Numba's threads set OpenMP's global thread count, which would change later training's bits.
    threads = torch.get_num_threads()
    try:
        compiled(
            flat(x),
            flat(v),
            rows(w[:, below[0], below[1]]),
            rows(inverse_mass),
            system.dt,
            np.inf if scheme == "adaptive" else float(system.max_force),
            system.law if builtin else -1,
            float(system.parameter),
            frames,
            *out,
        )
    finally:
        torch.set_num_threads(threads)
    split = out.reshape(2, blocks, len(frames), N, 3, W).transpose(0, 1, 5, 2, 3, 4)
    x_out, v_out = np.ascontiguousarray(
        split.reshape(2, blocks * W, len(frames), N, 3)[:, :num, ..., :n]
    )
    if not (np.isfinite(x_out).all() and np.isfinite(v_out).all()):
        raise InputError(
            f"simulate: a trajectory of {system.name!r} overflowed; use smaller steps, "
            "a softer law, or scheme 'adaptive'."
        )
    return x_out, v_out
