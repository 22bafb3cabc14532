"""Trajectories: simulated, measured, stored, cut into windows."""

from spacetime_en.data.simulation import simulate
from spacetime_en.data.systems import SYSTEMS, System
from spacetime_en.data.tasks import TASKS, Task, load_task
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.windows import Windows

__all__ = ["SYSTEMS", "TASKS", "System", "Task", "Trajectories", "Windows", "load_task", "simulate"]
