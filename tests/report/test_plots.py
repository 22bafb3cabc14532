"""Figures: every kind of data can be drawn, in the format of the file's name."""

import numpy as np
import pytest
import torch

from spacetime_en import Forecast, InputError, SpacetimeGraph
from spacetime_en.report.plots import (
    equal_axes,
    escape,
    new_figure,
    plot_equivariance,
    plot_error_against_time,
    save_figure,
)


def windows(n, count=2):
    generator = torch.Generator().manual_seed(0)
    return SpacetimeGraph(*torch.randn(2, count, 4, 5, n, generator=generator))


def test_a_rotated_window_beside_its_forecast(tmp_path):
    seen = []

    def model(graph):
        seen.append(graph.x)
        return Forecast(graph.x[:, -1:], graph.v[:, -1:])

    graph, q = windows(3), torch.eye(3).roll(1, 0)
    assert plot_equivariance(model, graph, q, tmp_path / "a.png").exists()
    window, rotated = seen
    assert torch.equal(rotated, window @ q.T)


def test_errors_against_time_are_lines_by_name(tmp_path):
    errors = [{"time": t, "mean_distance": d} for t, d in ((1, 0.5), (2, 1.5), (3, None))]
    rows = {"set $1$": {"error_against_time": errors}, "ridge": {"error_against_time": errors}}
    text = plot_error_against_time(rows, tmp_path / "new" / "a.svg").read_text()
    for word in ("set $1$", "ridge", "mean distance", "time after the last frame"):
        assert f"<!-- {word} -->" in text.replace(r"\$", "$")
    with pytest.raises(InputError, match=r"b.png: .* needs several target times"):
        plot_error_against_time({"set": {}}, tmp_path / "b.png")
    assert not (tmp_path / "b.png").exists()


def test_a_cube_holds_all_points_at_equal_scales():
    axes = new_figure(3, 3).add_subplot(projection="3d")
    points = np.array([[0.0, 0.0, 0.0], [4.0, 1.0, -2.0]])
    equal_axes(axes, points)
    limits = np.array([axes.get_xlim(), axes.get_ylim(), axes.get_zlim()])
    assert (limits[:, 0] <= points.min(0)).all()
    assert (limits[:, 1] >= points.max(0)).all()
    assert np.allclose(np.diff(limits), 4.4)


def test_a_dollar_in_a_name_begins_no_formula():
    assert escape("a $x$") == r"a \$x\$"


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"expected a name that ends in .*\.png"):
        save_figure(new_figure(1, 1), tmp_path / "a.doc", dpi=50)
    assert not list(tmp_path.iterdir())
