"""Cut trajectories into windows: L frames in, the state H steps after the last of them out."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spacetime_en.data.trajectories import Trajectories
from spacetime_en.errors import InputError
from spacetime_en.graph import Forecast, SpacetimeGraph

_IN_MEMORY = 1 << 30  # data sets up to a gigabyte are kept as tensors
Targets = Literal["observed", "clean"]


class Windows:
    """A data set of (SpacetimeGraph, Forecast) pairs; read on demand, kept if small.

    ``windows[i]`` is a pair with a batch of one, ``windows[indices]`` a pair with a whole batch.
    Charges become edge attributes c_i c_j, attributes of pairs edge attributes; any other
    attribute of a node joins its speed as a feature.

    Args:
        trajectories: where to cut.
        length: L, the number of frames.
        stride: steps between frames.
        horizon: H, steps from the last frame to the target.
        runs: the trajectories used, (R,); None: all.
        steps: (first, last) step that windows may touch, target included; None: all.
        noise: variance of Gaussian noise on every observed position and velocity.
        noise_seed: of the noise, apart from the seed of the trajectories.
        targets: ``"observed"``, with noise like all the rest, or ``"clean"``.
        dtype: of the tensors.
    """

    def __init__(
        self,
        trajectories: Trajectories,
        length: int,
        stride: int,
        horizon: int,
        *,
        runs: NDArray[np.int64] | None = None,
        steps: tuple[int, int] | None = None,
        noise: float = 0.0,
        noise_seed: int = 0,
        targets: Targets = "observed",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if targets not in ("observed", "clean"):
            raise InputError(f"targets: expected 'observed' or 'clean', found {targets!r}.")
        self.trajectories = trajectories
        self.length, self.stride, self.horizon = length, stride, horizon
        self.runs = np.arange(len(trajectories)) if runs is None else runs
        self.noise, self.noise_seed, self.targets = noise, noise_seed, targets
        self.dtype = dtype
        # (S, L + 1): the frames of each window that fits, by the number of steps done.
        offsets = np.append(np.arange(length) * stride, (length - 1) * stride + horizon)
        place = {int(step): frame for frame, step in enumerate(trajectories.steps)}
        low, high = (-np.inf, np.inf) if steps is None else steps
        self.frames = np.array(
            [
                [place[step] for step in (start + offsets).tolist()]
                for start in trajectories.steps.tolist()
                if all(s in place for s in (start + offsets).tolist())
                and start >= low
                and start + offsets[-1] <= high
            ],
            dtype=np.int64,
        ).reshape(-1, length + 1)
        if len(self.frames) == 0:
            have = trajectories.steps
            raise InputError(
                f"windows: no window of {length} frames, {stride} steps apart, with a target "
                f"{horizon} steps later fits the {len(have)} frames at steps {have[0]} to "
                f"{have[-1]}; use fewer frames, another stride or a nearer horizon."
            )

    def __len__(self) -> int:
        return len(self.runs) * len(self.frames)

    def __getitem__(
        self, index: SupportsIndex | slice | Sequence[int] | Tensor
    ) -> tuple[SpacetimeGraph, Forecast]:
        rows = np.atleast_1d(
            np.arange(len(self))[np.asarray(index) if not isinstance(index, slice) else index]
        )
        if self._bytes > _IN_MEMORY:
            return self._read(rows)
        graph, target = self._kept
        if isinstance(index, slice) and index.step in (None, 1):
            return graph[index], target[index]
        picked = torch.from_numpy(rows)
        return graph[picked], target[picked]

    @property
    def _bytes(self) -> int:
        _, _, N, n = self.trajectories.x.shape
        return len(self) * (self.length + 1) * N * n * 2 * 8

    @cached_property
    def _kept(self) -> tuple[SpacetimeGraph, Forecast]:
        return self._read(np.arange(len(self)))

    def _read(self, index: NDArray[np.int64]) -> tuple[SpacetimeGraph, Forecast]:
        """Read the windows at `index` from the trajectories."""
        t = self.trajectories
        runs = self.runs[index // len(self.frames)]  # (b,)
        frames = self.frames[index % len(self.frames)]  # (b, L + 1)
        rows = np.broadcast_to(runs[:, None], frames.shape)
        x, v = t.x[rows, frames], t.v[rows, frames]  # (b, L + 1, N, n)
        clean_x, clean_v = x[:, -1], v[:, -1]
        if self.noise > 0:
            noise = np.stack([self._noise(int(r))[:, f] for r, f in zip(runs, frames, strict=True)])
            x, v = x + noise[:, 0], v + noise[:, 1]
        if self.targets == "observed":
            clean_x, clean_v = x[:, -1], v[:, -1]
        times = t.times[frames]
        graph = SpacetimeGraph(
            self._tensor(x[:, :-1]),
            self._tensor(v[:, :-1]),
            box=None if t.box is None else self._tensor(np.asarray(t.box))[None],
            times=self._tensor(times[:, :-1] - times[:, :1]),
            horizon=self._tensor(times[:, -1] - times[:, -2]),
            **self._attributes(runs, v[:, :-1]),
        )
        return graph, Forecast(self._tensor(clean_x), self._tensor(clean_v))

    def _noise(self, run: int) -> Any:
        """(2, T, N, n), the noise of one trajectory: the same in every window that holds it."""
        _, T, N, n = self.trajectories.x.shape
        # Another counter than the trajectories' own draws, should the seeds be equal.
        stream = np.random.Philox(key=[self.noise_seed, run], counter=[0, 0, 0, 1])
        return np.sqrt(self.noise) * np.random.Generator(stream).standard_normal((2, T, N, n))

    def _attributes(self, runs: NDArray[np.int64], v: NDArray[Any]) -> dict[str, Any]:
        """Edge attributes and features of the graphs, from what is known of nodes and pairs."""
        edges, features = [], []
        for name, stacked in self.trajectories.attributes.items():
            value = stacked[runs]
            if name == "charge":
                edges.append(value[:, :, None] * value[:, None, :])
            elif value.ndim == 3:
                edges.append(value)
            else:
                features.append(np.broadcast_to(value[:, None], v.shape[:3]))
        fields: dict[str, Any] = {}
        if edges:
            fields["edge_attr"] = self._tensor(np.stack(edges, axis=-1))
        if features:
            speed = np.linalg.norm(v, axis=-1)
            fields["features"] = self._tensor(np.stack([speed, *features], axis=-1))
        return fields

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.array(array)).to(self.dtype)
