from .datasets.registry import TASKS as TASKS
from .datasets.registry import load_task as load_task
from .simulation.simulator import simulate as simulate
from .simulation.systems import SYSTEMS as SYSTEMS
from .simulation.systems import System as System
from .task import Task as Task
from .trajectories import Trajectories as Trajectories
from .windows import Windows as Windows
