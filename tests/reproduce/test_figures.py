"""Figures: as PNG and SVG, the same bytes for the same numbers."""

import numpy as np
import pytest

from spacetime_en.compare.panel import Curve, Panel
from spacetime_en.report.scene import Scene
from spacetime_en.reproduce.figures import plot_attention, plot_panel, plot_scenes

X = np.random.default_rng(0).standard_normal((4, 2, 3))
PANEL = Panel("p", "title", "x", "y", [Curve("SET", [5.0, 20.0], [1.0, 2.0])], ticks=[5, 20])
SCENES = [Scene(f"{k}", np.arange(4), X, np.array([2]), {"SET": {1: X[3:]}}) for k in range(3)]
MAPS = [dict.fromkeys(("features", "positions", "velocities"), np.eye(3).tolist())] * 2


@pytest.mark.parametrize(
    ("plot", "content"), [(plot_panel, PANEL), (plot_scenes, SCENES), (plot_attention, MAPS)]
)
def test_the_same_numbers_give_the_same_file(plot, content, tmp_path):
    png, svg = plot(content, tmp_path / "a")
    assert png.read_bytes().startswith(b"\x89PNG")
    _, again = plot(content, tmp_path / "b")
    assert svg.read_text() == again.read_text()
