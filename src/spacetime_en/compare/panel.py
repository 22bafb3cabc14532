"""Figures of curves, for matplotlib and for the HTML report."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Curve:
    """A labelled curve.

    Args:
        label: the model's.
        x, y: the points.
        trivial: whether it belongs to a trivial forecast.
    """

    label: str
    x: list[float]
    y: list[float]
    trivial: bool = False


@dataclass(frozen=True)
class Panel:
    """A figure of curves.

    Args:
        name: of its files.
        title, x, y: titles of the figure and its axes.
        curves: the curves.
        log_x, log_y: whether an axis is logarithmic.
        ticks: of the x axis; empty for automatic ones.
    """

    name: str
    title: str
    x: str
    y: str
    curves: list[Curve]
    log_x: bool = False
    log_y: bool = True
    ticks: list[int] = field(default_factory=list)
