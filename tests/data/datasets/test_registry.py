import dataclasses
import inspect
import re

import pytest

from spacetime_en import InputError
from spacetime_en.data import TASKS, load_task


@pytest.mark.parametrize("name", TASKS)
def test_every_setting_is_explained_and_may_be_replaced(name):
    """--help prints the class's docstring, and explains each setting by its entry."""
    data_set = TASKS[name]
    explained = re.findall(r"^    (\w+): ", inspect.getdoc(type(data_set)), re.MULTILINE)
    assert explained == [field.name for field in dataclasses.fields(data_set)]
    assert data_set.with_settings(data_set.settings, name) == data_set


def test_which_data_set_it_is_is_no_setting():
    assert "system" not in TASKS["charged"].settings
    with pytest.raises(InputError, match="system: not a setting of task 'charged'"):
        load_task("charged", system="gravity")


def test_unknown_names_and_settings_are_told_with_the_nearest():
    with pytest.raises(InputError, match="task: there is no 'charge'; did you mean 'charged'"):
        load_task("charge")
    with pytest.raises(InputError, match=r"node: not a setting of task 'charged', .*nodes"):
        load_task("charged", node=5)


def test_targets_other_than_observed_are_for_simulated_tasks():
    with pytest.raises(InputError, match="targets: not a setting of task 'solar-system'"):
        load_task("solar-system", targets="zero")
