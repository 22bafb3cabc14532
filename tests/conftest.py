"""Settings for all tests."""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from spacetime_en.data import Task, load_task
from tests.data.cmu import CMU
from tests.data.eth_ucy import ETH_UCY

# Reproducible, and never a verdict on how busy the machine is.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("default")
# Started in the background or by nohup, a process ignores these, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Kernels that PyTorch compiled under another ATEN_CPU_CAPABILITY can give wrong numbers here.
_compiled = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = _compiled.name
torch.set_num_threads(1)  # tiny tensors: threads would only wait for each other

for name, folder in (("CMU", CMU), ("ETH_UCY", ETH_UCY)):  # there in development and CI
    if folder.is_dir():
        os.environ[f"SPACETIME_EN_{name}"] = str(folder)

TINY = {"counts": (40, 12, 12), "target_steps": 10, "length": 3}


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    """For tests with another number of threads."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the data of tasks, the same for all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def tiny_task(cache: Path) -> Task:
    """A few short trajectories of charged particles, true targets."""
    return load_task("charged", cache=cache, **TINY)
