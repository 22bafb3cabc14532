"""Results for people: figures, animations, tables, the demo.

``plots`` draws with matplotlib, ``scene`` and ``animation`` show forecasts in motion, ``tables``
prints to a terminal, ``demo`` trains and compares three small models. Imports runs and every room
below.
"""

from typing import TYPE_CHECKING

from spacetime_en._util.lazy import attach

if TYPE_CHECKING:
    from spacetime_en.report.animation import animate as animate
    from spacetime_en.report.animation import make_scene as make_scene
    from spacetime_en.report.plots import plot_equivariance as plot_equivariance
    from spacetime_en.report.plots import plot_forecasts as plot_forecasts
    from spacetime_en.report.plots import plot_trajectories as plot_trajectories
    from spacetime_en.report.scene import Scene as Scene

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "animation": ["animate", "make_scene"],
        "plots": ["plot_equivariance", "plot_forecasts", "plot_trajectories"],
        "scene": ["Scene"],
    },
)
