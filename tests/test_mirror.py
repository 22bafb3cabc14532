"""Tests mirror the package: the tests of ``nn/state.py`` are in ``tests/nn/test_state.py``."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "spacetime_en"

# Modules that are tested through another one, where what they promise can be seen.
READERS = "data/readers/test_readers.py"  # every reader, through `read`
SIMULATOR = "data/simulation/test_simulator.py"  # against plain loops, through `simulate`
COMMANDS = "cli/test_commands.py"  # as a user types them
TESTED_ELSEWHERE = {
    "cli/comparing.py": "integration/test_compare.py",  # it trains
    "cli/data.py": COMMANDS,
    "cli/runs.py": COMMANDS,
    "cli/training.py": COMMANDS,
    "compare/display.py": "compare/test_workers.py",
    "compare/job.py": "compare/test_workers.py",  # a base class
    "compare/panel.py": "reproduce/test_curves.py",
    "compare/preload.py": "compare/test_workers.py",  # nothing but imports
    "data/datasets/dataset.py": "data/datasets/test_registry.py",  # a base class
    "data/differences.py": "data/test_trajectories.py",  # what velocities are, if none are given
    "data/given.py": "data/test_task.py",  # windows that somebody else has cut make a task
    "data/graphs.py": "data/test_windows.py",  # a window is a graph
    "data/leaks.py": "data/test_task.py",  # a task refuses leaks
    "data/readers/sandbox.py": "data/readers/test_untrusted_files.py",  # damaged files
    "data/readers/archives.py": "data/readers/test_untrusted_files.py",
    "data/readers/arrays.py": READERS,
    "data/readers/atoms.py": READERS,
    "data/readers/foreign/atoms.py": READERS,
    "data/readers/foreign/h5md.py": READERS,
    "data/readers/foreign/molecules.py": READERS,
    "data/readers/foreign/parquet.py": "data/readers/test_tables.py",
    "data/readers/foreign/program.py": "data/readers/test_untrusted_files.py",
    "data/readers/h5md.py": READERS,
    "data/readers/mocap.py": "data/datasets/test_mocap.py",
    "data/readers/molecules.py": READERS,
    "data/simulation/drift.py": SIMULATOR,
    "data/simulation/integrator.py": SIMULATOR,
    "data/simulation/ray.py": "integration/test_ray.py",  # needs a cluster
    "data/simulation/simd.py": SIMULATOR,
    "data/simulation/systems.py": SIMULATOR,
    "nn/layers/block.py": "nn/models/test_set.py",  # against the whole model's reference
    "nn/models/regression.py": "nn/models/test_ridge.py",  # a base class
    "report/demo.py": "integration/test_commands.py",  # it trains
    "reproduce/scenes.py": "integration/test_reproduce.py",  # needs results of trained models
    "runs/checkpoints.py": "runs/test_run.py",  # a run writes and resumes from them
    "training/display.py": "training/test_fitting.py",
    "training/module.py": "training/test_fitting.py",  # one step, as `fit` takes it
    "training/state.py": "training/test_fitting.py",  # what `fit` saves and continues from
    "training/trainer.py": "training/test_fitting.py",
}
MODULES = sorted(
    path.relative_to(PACKAGE).as_posix()
    for path in PACKAGE.rglob("*.py")
    if not path.name.startswith("__")
)


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_a_test_file_or_a_reason_for_none(module):
    folder, _, name = module.rpartition("/")
    assert (TESTS / folder / f"test_{name}").exists() != (module in TESTED_ELSEWHERE)


def test_the_list_names_modules_and_tests_that_exist():
    assert set(TESTED_ELSEWHERE) <= set(MODULES)
    assert all((TESTS / tests).exists() for tests in TESTED_ELSEWHERE.values())
