"""Which process writes; how runs are trained and resumed is in test_run.py."""

import pytest
from lightning.fabric.utilities.rank_zero import _get_rank

from spacetime_en.runs.training import is_first_process


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
