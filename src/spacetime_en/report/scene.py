"""Scenes: a past, the true future, and forecasts, to be drawn, played and turned."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.float64]


@dataclass(frozen=True)
class Scene:
    """What happened, and what was forecast.

    Args:
        title: to choose it by.
        steps: of the frames, (T,).
        observed: the last step that the forecasts know.
        x: true positions, (T, N, 3), z up.
        forecasts: by model, then by step, positions (N, 3).
        charge: of the nodes, (N,), or None.
        bones: pairs of nodes to connect.
        follow: whether to look at the nodes wherever they go, and not at all of their way.
    """

    title: str
    steps: NDArray[np.int64]
    observed: int
    x: Positions
    forecasts: Mapping[str, Mapping[int, Positions]]
    charge: Positions | None = None
    bones: list[tuple[int, int]] = field(default_factory=list)
    follow: bool = False

    def forecast_at(self, name: str, step: int) -> Positions | None:
        """A model's forecast at a step, on straight lines between those it made; None: none yet."""
        at = self.forecasts[name]
        times = [self.observed, *sorted(at)]
        if not self.observed < step <= times[-1]:
            return None
        start = self.x[int(np.searchsorted(self.steps, self.observed))]
        known = np.stack([start, *(at[t] for t in times[1:])])
        last = int(np.searchsorted(times, step))
        share = (step - times[last - 1]) / (times[last] - times[last - 1])
        return np.asarray(known[last - 1] + share * (known[last] - known[last - 1]))

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, with as many digits as can be seen."""
        extent = max(float(np.ptp(self.x, axis=(0, 1)).max()), 1e-300)
        digits = 4 - math.floor(math.log10(extent))

        def short(x: Positions) -> Any:
            return np.round(x, digits).tolist()

        return {
            "title": self.title,
            "steps": self.steps.tolist(),
            "lastStep": self.observed,
            "x": short(self.x),
            "charge": None if self.charge is None else self.charge.tolist(),
            "bones": self.bones,
            "follow": self.follow,
            "forecasts": {
                name: {str(step): short(x) for step, x in at.items()}
                for name, at in self.forecasts.items()
            },
        }


def asset(name: str, package: str = "spacetime_en.report") -> str:
    """A part of a page."""
    return (resources.files(package) / "assets" / name).read_text("utf-8")


def page(template: str, style: str, script: str, data: Mapping[str, Any]) -> str:
    """One file that needs nothing else: the template with the view in space, style, script, data.

    Args:
        template: HTML with places for the other parts.
        style, script: of this page, beside those of all pages.
        data: for the script.
    """
    # In a script element "</" could end it and "<!--" hide its end: to JSON this is the same text.
    text = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    return (
        template.replace("<!--SPACE-->", asset("space.html"))
        .replace("/*STYLE*/", asset("page.css") + style)
        .replace("/*SCRIPT*/", asset("space.js") + script)
        .replace("/*DATA*/", text)
    )
