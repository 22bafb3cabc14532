from .animation import animate as animate
from .animation import make_scene as make_scene
from .animation import window_scene as window_scene
from .drawing import plot_scene as plot_scene
from .plots import plot_equivariance as plot_equivariance
from .plots import plot_forecasts as plot_forecasts
from .plots import plot_trajectories as plot_trajectories
from .scene import Scene as Scene
