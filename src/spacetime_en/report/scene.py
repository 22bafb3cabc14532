"""Scenes: observed frames, the true future and forecasts, to be drawn, played and rotated."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import resources
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from spacetime_en.graph import Forecast, SpacetimeGraph

Positions = NDArray[np.float64]


@dataclass(frozen=True)
class Scene:
    """A true trajectory and the forecasts for it; NaN where a node is not present.

    Forecasts from one step are followed from that step on. With forecasts from many steps, each
    frame shows the current state with the paths forecast from it, or, for a single target time,
    with what was forecast for it.

    Args:
        title: shown above it.
        steps: the step of each frame, (F,).
        x: true positions, (F, N, 3), z up.
        ahead: the target times of the forecasts, in steps after the last frame seen, (T,).
        forecasts: by model, then by the step of the last frame seen, positions (T, N, 3).
        dims: dimensions of space that are drawn: 2, seen from above, or 3.
        tail: for how many steps the past of a node is shown; None: all of it.
        unit: of length; empty if it is not known.
        charge: of the nodes, (N,), or None.
        bones: pairs of nodes to connect.
        follow: whether the view follows the nodes; otherwise it shows their whole path.
        start: the last observed step, for a scene without forecasts.
    """

    title: str
    steps: NDArray[np.int64]
    x: Positions
    ahead: NDArray[np.int64]
    forecasts: Mapping[str, Mapping[int, Positions]]
    dims: int = 3
    tail: int | None = None
    unit: str = ""
    charge: Positions | None = None
    bones: list[tuple[int, int]] = field(default_factory=list)
    follow: bool = False
    start: int | None = None

    @cached_property
    def starts(self) -> list[int]:
        """The steps from which forecasts were made, in order."""
        return sorted({start for paths in self.forecasts.values() for start in paths})

    @property
    def moving(self) -> bool:
        """Whether forecasts were made from many steps."""
        return len(self.starts) > 1

    @property
    def observed(self) -> int:
        """The last step that the models had seen; with many forecasts, that of the first."""
        if self.starts:
            return self.starts[0]
        return int(self.steps[-1]) if self.start is None else self.start

    @property
    def frames(self) -> NDArray[np.int64]:
        """The frames to show, of those in `steps`: with paths, those they are forecast from."""
        if not self.moving or len(self.ahead) == 1:
            return np.arange(len(self.steps))
        first, last = self.starts[0], self.starts[-1]
        return np.flatnonzero((self.steps >= first) & (self.steps <= last))

    def when(self, step: int) -> str:
        """A step in words."""
        if self.moving:
            return f"step {step:,}"
        after = step - self.observed
        return "observed" if after <= 0 else f"{after:,} step{'s' * (after > 1)} ahead"

    def at(self, step: int) -> Positions:
        """The true positions at the frame of a step, (N, 3)."""
        frame: Positions = self.x[int(np.searchsorted(self.steps, step))]
        return frame

    def past(self, step: int) -> Positions:
        """The true positions up to `step`, as far back as the tail reaches, (K, N, 3)."""
        first = int(self.steps[0]) if self.tail is None else step - self.tail
        return self._between(first, step)

    def future(self, step: int) -> Positions:
        """The true positions from `step` to the last time that was forecast from it, (K, N, 3)."""
        return self._between(step, step + self.ahead[-1])

    def _between(self, first: int, last: int) -> Positions:
        return np.asarray(self.x[(self.steps >= first) & (self.steps <= last)])

    def forecast_at(self, name: str, step: int) -> Positions | None:
        """The path of a model's forecast that is shown at a step, (K, N, 3); None if there is none.

        With forecasts from one step: the path up to now, linearly interpolated; from many: the path
        from now on, or the one forecast for now.
        """
        paths = self.forecasts[name]
        if self.moving and len(self.ahead) == 1:
            return paths.get(step - int(self.ahead[0]))
        if self.moving:
            made = paths.get(step)
            return None if made is None else np.concatenate([self.at(step)[None], made])
        start = self.observed
        if start not in paths or not start < step <= start + self.ahead[-1]:
            return None
        times = np.array([start, *(start + self.ahead)])
        path = np.concatenate([self.at(start)[None], paths[start]])
        known = np.isfinite(path).any((1, 2))  # (a model may know only some of the times)
        times, path = times[known], path[known]
        if step > times[-1]:
            return None
        k = int(np.searchsorted(times, step))
        share = (step - times[k - 1]) / (times[k] - times[k - 1])
        return np.concatenate([path[:k], path[k - 1 : k] + share * (path[k] - path[k - 1])])

    def limits(self) -> tuple[Positions, Positions]:
        """The lowest and the highest true coordinates, (3,) each.

        Forecasts widen them by at most a half, so that an outlier does not shrink everything else.
        """
        true = self.x.reshape(-1, 3)
        low, high = np.nanmin(true, axis=0), np.nanmax(true, axis=0)
        paths = [path.reshape(-1, 3) for at in self.forecasts.values() for path in at.values()]
        if not paths:
            return low, high
        size = high - low
        room = np.maximum(0.5 * size, 0.02 * size.max())
        forecast = np.concatenate([true, *paths])
        return (
            np.maximum(np.nanmin(forecast, axis=0), low - room),
            np.minimum(np.nanmax(forecast, axis=0), high + room),
        )

    def from_the_side(self) -> Scene:
        """Project a 3-D scene of particles onto the plane in which its true motion extends most.

        Planar scenes, and bodies, which stand upright, are left as they are.
        """
        if self.dims == 2 or self.bones:
            return self
        true = self.x.reshape(-1, 3)
        true = true[np.isfinite(true).all(-1)]
        _, _, axes = np.linalg.svd(true - true.mean(0), full_matrices=False)
        if len(axes) < 3:
            return self
        turned = {
            name: {start: path @ axes.T for start, path in paths.items()}
            for name, paths in self.forecasts.items()
        }
        return replace(self, x=self.x @ axes.T, forecasts=turned, dims=2)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, rounded to visible precision; null where a node is not present."""
        low, high = self.limits()
        extent = max(float((high - low).max()), 1e-300)
        digits = 4 - math.floor(math.log10(extent))

        def short(x: Positions) -> list[Any]:
            places = np.round(x, digits).tolist()
            there = np.asarray(np.isfinite(x).all(-1)).tolist()
            return [
                [place if seen else None for place, seen in zip(*frame, strict=True)]
                for frame in zip(places, there, strict=True)
            ]

        return {
            "title": self.title,
            "dims": self.dims,
            "unit": self.unit,
            "limits": [np.round(edge, digits).tolist() for edge in (low, high)],
            "steps": self.steps.tolist(),
            "shown": self.frames[[0, -1]].tolist(),
            "ahead": self.ahead.tolist(),
            "tail": self.tail,
            "x": short(self.x),
            "charge": None if self.charge is None else self.charge.tolist(),
            "bones": self.bones,
            "follow": self.follow,
            "forecasts": {
                name: {str(start): short(x) for start, x in paths.items()}
                for name, paths in self.forecasts.items()
            },
        }


def scenes_of(
    graph: SpacetimeGraph,
    target: Forecast,
    forecasts: Mapping[str, Forecast],
    titles: Sequence[str],
) -> list[Scene]:
    """The scenes of windows, from nothing but the models' inputs and forecasts.

    Args:
        graph: the windows; in more than three dimensions, the first three are shown.
        target: the true futures.
        forecasts: by the name of the model.
        titles: of the windows.
    """
    B, L, N, n = graph.x.shape
    seen = torch.ones(B, L, N, dtype=torch.bool) if graph.observed is None else graph.observed
    past = _padded(graph.unwrapped_x(), seen)
    future = _padded(target.x, target.mask)
    x, ahead = np.concatenate([past, future], axis=1), np.arange(1, future.shape[1] + 1)
    paths = {name: _padded(forecast.x, forecast.mask) for name, forecast in forecasts.items()}
    return [
        Scene(
            title,
            np.arange(x.shape[1]),
            x[b],
            ahead,
            {name: {L - 1: path[b]} for name, path in paths.items()},
            dims=min(max(n, 2), 3),
            start=L - 1,
        )
        for b, title in enumerate(titles)
    ]


def _padded(x: Tensor, mask: Tensor | None) -> Positions:
    """Positions (..., n) as (..., 3), NaN where the mask is False."""
    x = x.detach().cpu().double()
    x = functional.pad(x, (0, max(0, 3 - x.shape[-1])))[..., :3]
    there = torch.ones(x.shape[:-1], dtype=torch.bool) if mask is None else mask.cpu()
    return np.asarray(x.masked_fill(~there[..., None], torch.nan).numpy())


def asset(name: str, package: str = "spacetime_en.report") -> str:
    """The text of an HTML, CSS or JavaScript file of a package."""
    return (resources.files(package) / "assets" / name).read_text("utf-8")


def html_page(template: str, style: str, script: str, data: Mapping[str, Any]) -> str:
    """A self-contained HTML page: the template with the 3-D view, styles, scripts and data.

    Args:
        template: HTML with placeholders for the other parts.
        style, script: of this page, in addition to those shared by all pages.
        data: read by the script.
    """
    # "</" could end a script element and "<!--" hide its end; in JSON the escape is equivalent.
    text = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    return (
        template.replace("<!--SPACE-->", asset("space.html"))
        .replace("/*STYLE*/", asset("page.css") + style)
        .replace("/*SCRIPT*/", asset("space.js") + script)
        .replace("/*DATA*/", text)
    )
