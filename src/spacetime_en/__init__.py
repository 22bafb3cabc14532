"""Equivariant forecasting of moving point clouds: the Spacetime E(n)-Transformer.

A :class:`SpacetimeGraph` goes in, L observed frames of N nodes; a :class:`Forecast` comes out,
positions and velocities of every node at the horizon.

Names are imported when they are first used, so that ``import spacetime_en`` is fast and the command
line can handle Ctrl-C while PyTorch is imported.
"""

from typing import Any

from lazy_loader import attach_stub

_get, __dir__, __all__ = attach_stub(__name__, __file__)  # the names of __init__.pyi


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("spacetime-en")
    if name == "Forecaster":  # whose from_pretrained finds the models that are imported
        import spacetime_en.nn.presets  # noqa: F401
    return _get(name)
