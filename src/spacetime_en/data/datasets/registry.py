"""Data sets by name. To add one, put a file with a :class:`DataSet` here and a line below."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from spacetime_en._util.errors import no_such
from spacetime_en._util.files import cache_folder
from spacetime_en._util.schema import checked
from spacetime_en.data.datasets.dataset import DataSet
from spacetime_en.data.datasets.egnn_nbody import EGNNBenchmark
from spacetime_en.data.datasets.mocap import MotionCapture
from spacetime_en.data.datasets.pedestrians import Pedestrians
from spacetime_en.data.datasets.simulated import Simulated
from spacetime_en.data.datasets.solar import SolarSystem
from spacetime_en.data.task import Task

TASKS: dict[str, DataSet] = {
    "charged": Simulated("charged"),
    "charged-noisy": Simulated("charged", noise=0.5),
    "gravity": Simulated("gravity", target_steps=100),
    "springs": Simulated("springs", target_steps=100),
    "egnn-nbody": EGNNBenchmark(),
    "solar-system": SolarSystem(),
    "mocap-walk": MotionCapture("walk"),
    "mocap-run": MotionCapture("run", protocol="one-frame"),
    "mocap-basketball": MotionCapture("basketball"),
    "eth": Pedestrians("eth"),
    "hotel": Pedestrians("hotel"),
    "univ": Pedestrians("univ"),
    "zara1": Pedestrians("zara1"),
    "zara2": Pedestrians("zara2"),
}


@checked
def load_task(name: str, *, cache: str | os.PathLike[str] | None = None, **settings: Any) -> Task:
    """Load a task by name; its data are generated on first use, and verified from then on.

    Args:
        name: a key of :data:`TASKS`.
        cache: folder for the data; None: :func:`cache_folder`.
        settings: override the data set's: ``nodes``, ``target_steps``, ``counts``, ``seed``, ...
    """
    if name not in TASKS:
        raise no_such("task", name, TASKS)
    folder = cache_folder() if cache is None else Path(cache)
    return TASKS[name].with_settings(settings, name).load(name, folder)
