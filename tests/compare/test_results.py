"""Results are read as written, and not confused with those of other settings."""

import dataclasses
import os
import threading

import pytest

from spacetime_en import InputError
from spacetime_en._util.files import create_atomically
from spacetime_en.compare.results import (
    made_with,
    read_result,
    result_path,
    settings_of,
    write_result,
    written_once,
)
from spacetime_en.runs.config import Config
from spacetime_en.training.settings import TrainingSettings

CONFIG = Config("set", {"hidden": 8}, {"name": "charged"}, TrainingSettings(lr=2e-3, steps=5))


def test_numbers_that_json_does_not_know_become_null(tmp_path):
    write_result(tmp_path, "one", {"a": [float("inf"), 0.12345678], "b": {"c": (1, "x")}})
    assert result_path(tmp_path, "one").read_text() == (
        '{\n"a": [null, 0.123457],\n"b": {"c": [1, "x"]}\n}\n'
    )
    assert read_result(tmp_path, "one") == {"a": [None, 0.123457], "b": {"c": [1, "x"]}}
    assert read_result(tmp_path, "other") is None


@pytest.mark.parametrize("broken", ["{", "null", "7", "[1]", "[" * 100_000])
def test_what_is_no_result_is_named(tmp_path, broken):
    write_result(tmp_path, "one", {})
    result_path(tmp_path, "one").write_text(broken)
    with pytest.raises(InputError, match=r"one.json: is no result .* delete it to make it again"):
        read_result(tmp_path, "one")


def test_a_pipe_in_the_place_of_a_result_is_not_waited_for(tmp_path):
    write_result(tmp_path, "one", {})
    path = result_path(tmp_path, "one")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match=r"one.json: is no result .is no regular file"):
        read_result(tmp_path, "one")


def test_what_is_needed_of_a_result_must_be_there(tmp_path):
    @dataclasses.dataclass
    class Needed:
        seconds: float

    write_result(tmp_path, "one", {"seconds": 3.0, "more": "x"})
    assert read_result(tmp_path, "one", Needed) == {"seconds": 3.0, "more": "x"}
    for wrong in ({}, {"seconds": "3"}):
        write_result(tmp_path, "one", wrong)
        with pytest.raises(InputError, match=r"one.json: is no result .* delete it"):
            read_result(tmp_path, "one", Needed)


def test_what_another_machine_is_writing_is_waited_for(tmp_path):
    path, theirs = tmp_path / "question.json", threading.Event()

    def other():
        with create_atomically(path) as temporary:
            temporary.write_text('{"format": 1, "by": "another"}')
            theirs.wait()

    writer = threading.Thread(target=other)

    def make():
        """While it is made here, the other begins to write, and ends a little later."""
        writer.start()
        while not list(tmp_path.glob(".spacetime-en*/question.json")):
            pass
        threading.Timer(0.2, theirs.set).start()
        return {"by": "this one"}

    assert written_once(path, 1, make)["by"] == "another"
    writer.join()


def test_settings_decide_and_the_machine_does_not():
    made = {"settings": settings_of(CONFIG)}
    elsewhere = dataclasses.replace(CONFIG.training, devices=2, save_every=1.0)
    longer = dataclasses.replace(CONFIG.training, steps=6)
    assert made_with(made, CONFIG)
    assert made_with(made, dataclasses.replace(CONFIG, training=elsewhere))
    assert not made_with(made, dataclasses.replace(CONFIG, training=longer))
    assert not made_with(made, dataclasses.replace(CONFIG, model={"hidden": 9}))
    assert not made_with({}, CONFIG)


def test_a_result_older_than_a_setting_had_its_default():
    settings = settings_of(CONFIG)
    del settings["training"]["jitter"]
    assert made_with({"settings": settings}, CONFIG)
    jittered = dataclasses.replace(CONFIG.training, jitter=0.5)
    assert not made_with({"settings": settings}, dataclasses.replace(CONFIG, training=jittered))
