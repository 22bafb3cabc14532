import gzip
from datetime import datetime

import numpy as np
import pytest

from spacetime_en import InputError
from spacetime_en.data import tables
from spacetime_en.data.tables import ArrayTable, TextTable, is_table, whole_numbers

KINDS = {"frame": "time", "id": "label", "x": "number", "y": "number"}
ROWS = "0,1,1.5,2\n0,2,3,4\n1,1,5,-6e-1\n"


def text(tmp_path, content, name="a.csv"):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return TextTable(tmp_path / name)


def check(columns):
    assert columns["frame"].tolist() == [0, 0, 1]
    assert [columns["id"].values[code] for code in columns["id"].codes] == ["1", "2", "1"]
    assert columns["x"].tolist() == [1.5, 3, 5]
    assert columns["y"].tolist() == [2, 4, -0.6]


@pytest.mark.parametrize(
    "content",
    [
        "frame,id,x,y\n" + ROWS,
        "\ufeffframe,id,x,y\r\n" + ROWS.replace("\n", "\r\n"),
        "frame;id;x;y\r" + ROWS.replace(",", ";").replace("\n", "\r"),
        "frame\tid\tx\ty\n" + ROWS.replace(",", "\t"),
        "  frame id   x y\n" + ROWS.replace(",", "   "),
        "# made by hand\n\n'frame',id,x,y\n".replace("'", '"') + ROWS.replace("3,4", '"3","4"'),
        "# frame id x y\n" + ROWS.replace(",", " "),
        ROWS.replace(",", "\t"),
        "frame, id, x, y,\n" + ROWS.replace("\n", ",\n").replace(",", ", "),
        "frame;id;x;y\n" + ROWS.replace(",", ";").replace(".", ","),
        ROWS.replace(",", " ").replace(".", ","),
        "frame,id,x,y\n" + ROWS + "\n,,,\n   \n# the end",
        "frame,id,x,y,remark\n" + ROWS.replace("\n", ',"two\nlines, and a comma"\n'),
    ],
)
@pytest.mark.parametrize("chunk", [1, 2, 512])
def test_text_in_all_the_ways_that_people_write_it(tmp_path, content, chunk, monkeypatch):
    monkeypatch.setattr(tables, "_CHUNK", chunk)
    monkeypatch.setattr(tables, "_BLOCK", 100 * chunk)
    check(text(tmp_path, content).read(KINDS))


def test_packed_text(tmp_path):
    packed = gzip.compress(("frame,id,x,y\n" + ROWS).encode())
    check(text(tmp_path, packed, "a.csv.gz").read(KINDS))
    assert is_table(tmp_path / "A.CSV.GZ")
    assert not is_table(tmp_path / "a.tar.gz")
    with pytest.raises(InputError, match="cannot be read"):
        text(tmp_path, packed[:40], "b.csv.gz").read(KINDS)
    with pytest.raises(InputError, match="cannot be read"):
        text(tmp_path, "frame,id,x,y\n" + ROWS, "c.csv.gz")


def test_a_table_without_header_says_what_it_is_taken_for(tmp_path):
    found = text(tmp_path, "0 1 2 3 4\n")
    assert found.names == ["frame", "id", "x", "y", "z"]
    assert found.notes == ["no header: the columns are taken as frame, id, x, y, z"]
    assert text(tmp_path, "0 1 2 3 4 5\n").names == ["1", "2", "3", "4", "5", "6"]


def test_missing_numbers_and_decimal_commas(tmp_path):
    found = text(tmp_path, "frame;id;x;y\n0;a;1,5;NA\n1;a;;nan\n2;a;inf;-\n")
    columns = found.read(KINDS)
    np.testing.assert_equal(columns["x"], [1.5, np.nan, np.inf])
    assert np.isnan(columns["y"]).all()
    assert found.notes == ["commas inside numbers are decimal points"]


def test_dates_are_seconds(tmp_path):
    content = "date,id,x,y\n2024-05-01T12:00:00Z,a,0,0\n2024-05-01 12:00:01.5,a,0,0\n"
    columns = text(tmp_path, content).read({"date": "time"})
    assert np.diff(columns["date"]).tolist() == [1.5]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is an empty table"),
        ("\n \n\n", "is an empty table"),
        ("# nothing\n", "is an empty table"),
        ("frame|id|x|y\n0|1|2|3\n", "its first line is one word, 'frame|id|x|y'; expected columns"),
        ("frame,id,x,y\n0,1,2\n", "line 2: expected 4 columns, found 3"),
        ("frame,id,x,y\n\n0,1,2,3\n0,1,2,5,3,5\n", "line 4: expected 4 columns, found 6; decimal"),
        ("frame,id,x,y\n0,1,2,three\n", "line 2: y: expected a number, found 'three'"),
        ('frame,id,x,y\n0,1,"1,5",2\n0,2,"1,234.5",2\n', "line 3: x: has decimal points and comm"),
        ("frame,id,x,y\n0,,2,3\n", "line 2: id: is missing"),
        (f"frame,id,x,y\n0,{'a' * 300},2,3\n", "line 2: id: is longer than a name"),
        ("frame,id,x,y\nsoon,1,2,3\n", "line 2: frame: expected a number or a date such as 2024"),
        (b"frame,id,x,y\n0,M\xfcller,2,3\n", "is not text in UTF-8"),
        ("frame,id,x,y\n".encode("utf-16"), "is not text in UTF-8"),
        (b"PAR1\x00\xff\xfe", "is not text in UTF-8"),
        ("a," * 2000 + "b\n", "has 2001 columns, and 1000 are the most"),
        ("frame,id,x,y\n0,1,2," + "3" * 3_000_000, "a line is longer than"),
        ('frame,id,x,y\n0,"1,2,3' + "\nfour" * 100_000, "cannot be read (field larger than"),
    ],
)
def test_bad_text_is_told_in_one_sentence(tmp_path, content, words):
    with pytest.raises(InputError) as caught:
        text(tmp_path, content).read(KINDS)
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "a.csv"))
    assert "\n" not in str(caught.value)


def test_rows_are_bounded_by_memory(tmp_path, monkeypatch):
    table = text(tmp_path, "frame,id,x,y\n" + "0,1,2,3\n" * 60_000)
    monkeypatch.setattr("spacetime_en._util.machine.free_memory", lambda: 1_000_000)
    with pytest.raises(InputError, match="cut it into smaller files"):
        table.read(KINDS)


# --- memory ---------------------------------------------------------------------------------------


class Index:
    def __init__(self, names):
        self.names = names


class Frame:
    """Like a data frame of pandas whose index has names."""

    def __init__(self, columns, index=None):
        self.data, self.columns, self.index = columns, list(columns), Index([index])

    def __getitem__(self, name):
        return self.data[name]

    def reset_index(self):
        return Frame(self.data | {"frame": [0, 0, 1]})


def test_columns_in_memory():
    columns = {"frame": [0, 0, 1], "id": [7, 2, 7], "x": np.float32([1, 2, 3]), 4: ["1", "", None]}
    for data in (columns, Frame(columns)):
        read = ArrayTable(data).read({"frame": "time", "id": "label", "x": "number", "4": "number"})
        assert read["id"].values == [2, 7]
        assert read["id"].codes.tolist() == [1, 0, 1]
        assert read["x"].dtype == np.float64
        np.testing.assert_equal(read["4"], [1, np.nan, np.nan])
    records = np.array([(0, 1.0)], dtype=[("frame", int), ("x", float)])
    assert ArrayTable(records).read({"x": "number"})["x"].tolist() == [1]
    indexed = Frame({name: columns[name] for name in ("id", "x")}, index="frame")
    assert ArrayTable(indexed).read({"frame": "time"})["frame"].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    "dates",
    [
        np.array(["2024-05-01T00:00:01", "NaT"], dtype="M8[ms]"),
        [datetime(2024, 5, 1, 0, 0, 1), datetime(2024, 5, 1)],
    ],
)
def test_dates_in_memory(dates):
    seconds = ArrayTable({"t": dates}).read({"t": "time"})["t"]
    assert seconds[0] == 1714521601


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([1, "1"], "row 1: id: changes its type, 1 and '1'; make all of them numbers, or all tex"),
        (["a", 1], "row 1: id: changes its type, 'a' and 1"),
        ([1.0, np.nan], "row 1: id: is missing"),
        ([None, "a"], "row 0: id: is missing"),
        ([1, None], "row 1: id: is missing"),
        ([1j, 2j], "id: expected numbers or texts, found values of type complex128"),
        ([[1, 2], [3, 4]], "id: expected one value in each row, found (2, 2)"),
        ([[1], [3, 4]], "id: cannot be made an array"),
        ([1, 2, 3], "its columns have different lengths: id 3, x 2"),
    ],
)
def test_bad_columns_in_memory(ids, words):
    with pytest.raises(InputError) as caught:
        ArrayTable({"id": ids, "x": [0.0, 1.0]}).read({"id": "label", "x": "number"})
    assert words in str(caught.value)


def test_other_things_are_no_tables():
    with pytest.raises(InputError, match="expected a data frame or a dictionary of columns, found"):
        ArrayTable(3)


def test_which_labels_are_numbers():
    assert whole_numbers(["1", "2.0", "3.000e+00", "007", "1e3"]) == [1, 2, 3, 7, 1000]
    assert whole_numbers([5, np.int64(6), True]) == [5, 6, 1]
    for other in ("a", "1_2", "1.5", "-1", "1e-3", "9" * 17, "9" * 400, "", "١"):
        assert whole_numbers(["1", other]) is None
    assert whole_numbers([2**53]) == [2**53]
    assert whole_numbers([2**60]) is None
