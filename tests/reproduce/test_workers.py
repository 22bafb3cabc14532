"""Many experiments: refusals before any process starts, and results that are there are kept."""

import pytest

from spacetime_en import InputError
from spacetime_en.reproduce import workers
from spacetime_en.reproduce.plan import Data, Experiment
from spacetime_en.reproduce.workers import carry_out_all
from tests.reproduce.test_tables import SCALE, write

EXPERIMENT = Experiment(Data(), "mlp", rate=1e-3)


@pytest.fixture(autouse=True)
def no_process(monkeypatch):
    monkeypatch.delattr(workers._Worker, "start")


def test_what_has_a_result_is_not_carried_out_again(tmp_path):
    write(tmp_path, EXPERIMENT, 4.0)
    assert carry_out_all([EXPERIMENT], SCALE, tmp_path) == []


@pytest.mark.parametrize("count", [0, -1, 10**6])
def test_impossible_numbers_of_workers_are_refused(count, tmp_path):
    with pytest.raises(InputError, match="workers: expected 1 to"):
        carry_out_all([EXPERIMENT], SCALE, tmp_path, count)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(InputError, match="is no folder; choose another name"):
        carry_out_all([EXPERIMENT], SCALE, tmp_path / "results")
