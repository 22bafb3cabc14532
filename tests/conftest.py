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

# Two processes share the tests, file by file: neither is left with a long one at the end.
LONGEST = (
    *("integration/test_reproduce.py", "runs/test_export.py", "nn/test_contract.py"),
    *("test_equivariance.py", "integration/test_kill_and_resume.py", "runs/test_search.py"),
    *("nn/models/test_set.py", "test_docs.py", "integration/test_distributed.py"),
    *("training/test_fitting.py", "integration/test_report.py", "integration/test_ray.py"),
)

TINY = {"counts": (40, 12, 12), "target_steps": 10, "length": 3}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, and leave the others in their order."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


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
