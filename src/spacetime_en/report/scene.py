"""Scenes: observed frames, the true future and forecasts, to be drawn, played and rotated."""

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
    """A true trajectory and the forecasts for it.

    Args:
        title: shown above it.
        steps: the step of each frame, (T,).
        observed: the last step that the models have seen.
        x: true positions, (T, N, 3), z up.
        forecasts: by model, then by step, positions (N, 3).
        charge: of the nodes, (N,), or None.
        bones: pairs of nodes to connect.
        follow: whether the view follows the nodes; otherwise it shows their whole path.
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
        """A model's forecast at a step, linearly interpolated; None outside its time range."""
        at = self.forecasts[name]
        times = [self.observed, *sorted(at)]
        if not self.observed < step <= times[-1]:
            return None
        start = self.x[int(np.searchsorted(self.steps, self.observed))]
        x = np.stack([start, *(at[t] for t in times[1:])])
        k = int(np.searchsorted(times, step))
        fraction = (step - times[k - 1]) / (times[k] - times[k - 1])
        return np.asarray(x[k - 1] + fraction * (x[k] - x[k - 1]))

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, rounded to what can be seen."""
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
    """The text of an HTML, CSS or JavaScript file of a package."""
    return (resources.files(package) / "assets" / name).read_text("utf-8")


def html_page(template: str, style: str, script: str, data: Mapping[str, Any]) -> str:
    """A self-contained HTML page: the template with the 3-D view, styles, scripts and data.

    Args:
        template: HTML with placeholders for the other parts.
        style, script: of this page, beside those shared by all pages.
        data: read by the script.
    """
    # "</" could end a script element and "<!--" hide its end; in JSON the escape is the same text.
    text = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    return (
        template.replace("<!--SPACE-->", asset("space.html"))
        .replace("/*STYLE*/", asset("page.css") + style)
        .replace("/*SCRIPT*/", asset("space.js") + script)
        .replace("/*DATA*/", text)
    )
