"""The process that writes, and runs without training; test_run.py tests resuming."""

import pytest
from lightning.fabric.utilities.rank_zero import _get_rank

from spacetime_en import Forecaster, StraightLine
from spacetime_en.evaluation import mean_position_error
from spacetime_en.runs.config import Config
from spacetime_en.runs.run import Run
from spacetime_en.runs.training import is_first_process, keep_untrained
from spacetime_en.training.settings import TrainingSettings
from tests.conftest import TINY


@pytest.mark.parametrize(
    ("variables", "first"),
    [
        ({}, True),
        ({"RANK": "0", "LOCAL_RANK": "0"}, True),
        ({"RANK": "8", "LOCAL_RANK": "0"}, False),  # torchrun, on the second machine
        ({"LOCAL_RANK": "1"}, False),  # started by Lightning
        ({"SLURM_PROCID": "0"}, True),
        ({"SLURM_PROCID": "3"}, False),
    ],
)
def test_the_first_process_is_lightnings(monkeypatch, variables, first):
    for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_first_process() is first
    assert ((_get_rank() or 0) == 0) is first


def test_a_model_with_nothing_to_train_is_kept_as_a_run(tmp_path, tiny_task):
    config = Config("straight-line", {}, {"name": "charged", **TINY}, TrainingSettings())
    keep_untrained(config, tmp_path / "run", tiny_task)
    run = Run.open(tmp_path / "run")
    graph, _ = tiny_task.test[:2]
    assert (run.model()(graph).x == StraightLine()(graph).x).all()
    error = mean_position_error(StraightLine(), tiny_task.val, 100)
    assert run.load("best").progress.best == error
    assert Forecaster.from_pretrained(tmp_path / "run" / "model").trained_on == run.data
