import numpy as np
import pytest

from spacetime_en import InputError
from spacetime_en.data.columns import Columns
from spacetime_en.data.observations import Source, gather, split_name
from spacetime_en.data.tables import ArrayTable

COLUMNS = {"frame": [0, 1, 0], "id": [5, 5, 3], "x": [1.0, 2, 3], "y": [4.0, 5, 6]}


def source(name="a", split=None, **columns):
    return Source(ArrayTable(COLUMNS | columns, where=name), name, split)


def names(found):
    return [found.recordings[code] for code in found.recording]


def test_one_table():
    found = gather([source()], Columns())
    assert [found.nodes[code] for code in found.node] == [5, 5, 3]
    assert found.nodes == [3, 5]  # in order
    assert names(found) == ["a"] * 3
    assert found.splits is None
    assert [p.tolist() for p in found.positions] == [[1, 2, 3], [4, 5, 6]]


def test_several_tables_are_several_recordings():
    found = gather([source("a", "train"), source("b", "test", id=["5", "x", "3"])], Columns())
    assert sorted(found.nodes) == ["3", "5", "x"]
    assert [found.nodes[code] for code in found.node] == ["5", "5", "3", "5", "x", "3"]
    assert names(found) == ["a"] * 3 + ["b"] * 3
    assert found.splits == ["train", "test"]
    assert found.place(1) == "a, row 1"
    assert found.place(4) == "b, row 1"


def test_recordings_and_splits_in_columns():
    found = gather([source(scene=["s", "t", "s"])], Columns())
    assert names(found) == ["s", "t", "s"]
    found = gather([source(scene=["s", "t", "s"]), source("b")], Columns())
    assert names(found) == ["a/s", "a/t", "a/s", "b", "b", "b"]


def test_rows_of_different_splits_are_different_recordings():
    columns = COLUMNS | {"split": ["train", "Validation", "test"]}
    found = gather([Source(ArrayTable(columns), "a")], Columns())
    assert names(found) == ["a/train", "a/val", "a/test"]
    assert [found.splits[code] for code in found.recording] == ["train", "val", "test"]


def test_what_only_some_tables_have_is_left_out():
    speeds = {"vx": [0.0, 0, 0], "vy": [0.0, 0, 0], "mass": [1.0, 1, 1]}
    assert gather([source(**speeds)], Columns()).velocities
    found = gather([source(**speeds), source("b")], Columns())
    assert found.velocities == []
    assert found.attributes == {}


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ([source(), source("b", z=[0.0, 0, 0])], "b: has frames and positions x, y, z, and a has"),
        ([source(frame=[0, np.nan, 1])], "a, row 1: frame: is missing"),
        ([source(x=[], y=[], frame=[], id=[])], "a: has a header, and no rows below it"),
        ([source("a", "train"), source("b")], "split: the recording 'b' has none"),
        (
            [Source(ArrayTable(COLUMNS | {"split": ["train", "lunch", "val"]}), "a")],
            "split: expected train, val or test, found 'lunch'",
        ),
        ([Source(ArrayTable({"a": [1]}, where="b.csv"), "b")], "b.csv: positions: no columns"),
    ],
)
def test_tables_that_do_not_fit(sources, words):
    with pytest.raises(InputError) as caught:
        gather(sources, Columns())
    assert words in str(caught.value)


def test_names_of_splits():
    assert [split_name(w) for w in ("Train", "valid", "TEST", "all")] == [
        "train",
        "val",
        "test",
        None,
    ]
