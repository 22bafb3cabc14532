"""Trajectories: simulated or measured, stored, and cut into windows.

``trajectories`` holds runs, ``windows`` cuts them, and ``task`` splits the windows; ``readers`` and
``writers`` are for files, ``simulation`` makes data, and ``datasets`` loads data sets by name.
Imports graphs and geometry, and knows nothing of models.
"""

from typing import TYPE_CHECKING

from spacetime_en._util.lazy import attach

if TYPE_CHECKING:
    from spacetime_en.data.datasets.registry import TASKS as TASKS
    from spacetime_en.data.datasets.registry import load_task as load_task
    from spacetime_en.data.simulation.simulator import simulate as simulate
    from spacetime_en.data.simulation.systems import SYSTEMS as SYSTEMS
    from spacetime_en.data.simulation.systems import System as System
    from spacetime_en.data.task import Task as Task
    from spacetime_en.data.trajectories import Trajectories as Trajectories
    from spacetime_en.data.windows import Windows as Windows

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "datasets.registry": ["TASKS", "load_task"],
        "simulation.simulator": ["simulate"],
        "simulation.systems": ["SYSTEMS", "System"],
        "task": ["Task"],
        "trajectories": ["Trajectories"],
        "windows": ["Windows"],
    },
)
