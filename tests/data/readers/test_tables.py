"""Tables of tracks through `read`: files, folders, splits."""

import gzip
import os
import tracemalloc

import numpy as np
import pytest

from spacetime_en import InputError
from spacetime_en.data import Trajectories
from spacetime_en.data.columns import Columns
from spacetime_en.data.readers import read

HEAD = "frame,id,x,y\n"


def walk(frames, node, sign=","):
    return "".join(f"{f}{sign}{node}{sign}{f / 2}{sign}{node}\n" for f in frames)


def make(folder, **files):
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_txt", ".txt").replace("_csv", ".csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


@pytest.mark.parametrize("name", ["a.csv", "A.TSV", "a.txt", "a.csv.gz"])
def test_one_file(tmp_path, name):
    content = (HEAD + walk(range(0, 30, 10), 4) + walk([0], 6)).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    t = read(tmp_path / name, time_step=0.4)
    assert t.x.shape == (1, 3, 2, 2)
    assert t.meta["recordings"] == [name[0]]
    assert t.times.tolist() == [0, 0.4, 0.8]
    assert t.ids[0, 0].tolist() == [4, 6]


def test_a_folder_is_several_recordings(tmp_path):
    make(
        tmp_path,
        a_csv=HEAD + walk(range(4), 1),
        inner__b_txt=walk(range(10, 16), 2, "\t"),
        readme_txt="Tracks of two people.",
    )
    (tmp_path / "notes.md").write_text("hello")
    t = read(tmp_path)
    assert t.meta["recordings"] == ["a", "inner/b"]
    assert t.meta["first_frames"] == [0, 10]
    assert t.lengths.tolist() == [4, 6]
    assert "splits" not in t.meta
    assert "files ignored: notes.md, readme.txt" in t.meta["notes"]


def test_folders_of_splits(tmp_path):
    files = {f"{split}__a_csv": HEAD + walk(range(4), 1) for split in ("train", "Valid", "test")}
    t = read(make(tmp_path, **files))
    assert dict(zip(t.meta["recordings"], t.meta["splits"], strict=True)) == {
        "train/a": "train",
        "Valid/a": "val",
        "test/a": "test",
    }
    assert "splits: train 1, val 1, test 1" in t.meta["notes"]
    saved = Trajectories.open(t.save(tmp_path / "set"), verify=True)
    assert saved.meta == t.meta
    make(tmp_path, b_csv=HEAD + walk(range(4), 1))
    os.rename(tmp_path / "set", tmp_path.parent / "set")
    with pytest.raises(InputError, match="split: the recording 'b' has none, and others have"):
        read(tmp_path)


def test_names_of_columns(tmp_path):
    make(tmp_path, a_csv="n,who,left,up\n0,a,1,2\n1,a,3,4\n")
    columns = Columns(frame="n", id="who", positions=("left", "up"))
    t = read(tmp_path / "a.csv", columns=columns)
    assert t.x[0, :, 0].tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InputError, match=r"a.csv: positions: no columns are called x and y; there"):
        read(tmp_path / "a.csv")
    make(tmp_path, b_txt="0 1 8 9 5 6\n1 1 8 9 7 8\n")
    columns = Columns(frame="1", id="2", positions=("5", "6"))
    assert read(tmp_path / "b.txt", columns=columns).x[0, 1, 0].tolist() == [7, 8]


def test_from_table_reads_text_as_well(tmp_path, capsys):
    make(tmp_path, a_csv=HEAD + walk(range(4), 1))
    t = Trajectories.from_table(tmp_path / "a.csv")
    assert t.meta["recordings"] == ["a"]
    assert "columns: frame: frame; id: id; positions: x, y" in capsys.readouterr().err


def test_mixed_dimensions(tmp_path):
    make(tmp_path, a_csv="frame,id,x,y,z\n0,1,2,3,4\n1,1,2,3\n")
    with pytest.raises(InputError, match=r"a.csv, line 3: expected 5 columns, found 4"):
        read(tmp_path / "a.csv")
    make(tmp_path, a_csv="frame,id,x,y,z\n0,1,2,3,4\n1,1,2,3,\n2,1,2,3,4\n")
    t = read(tmp_path / "a.csv")
    assert t.observed[0, :, 0].tolist() == [True, False, True]
    assert "1 row with NaN, infinite or missing positions: not observed" in t.meta["notes"]


@pytest.mark.slow
def test_memory_stays_below_three_times_the_file(tmp_path):
    rng = np.random.default_rng(0)
    with (tmp_path / "a.csv").open("w") as file:
        file.write(HEAD)
        for person, start in enumerate(np.sort(rng.integers(0, 400, 2000)).tolist()):
            for frame, (x, y) in enumerate(rng.normal(size=(100, 2)).tolist(), start=start):
                file.write(f"{frame},{person},{x:.6f},{y:.6f}\n")
    tracemalloc.start()
    t = read(tmp_path / "a.csv")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert t.observed.sum() == 200_000
    assert peak < 3 * (tmp_path / "a.csv").stat().st_size + (8 << 20)  # blocks of text, modules


# --- Parquet --------------------------------------------------------------------------------------


@pytest.fixture
def parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    writer = pytest.importorskip("pyarrow.parquet")

    def make(columns, name="a.parquet"):
        writer.write_table(pyarrow.table(columns), tmp_path / name)
        return tmp_path / name

    return make


COLUMNS = {"frame": [0, 0, 1, 1, 2], "x": [0.0, 1, 2, 3, 4], "y": [0.0, 1, 2, 3, 4]}


@pytest.mark.parametrize("ids", [[7, 9, 7, 9, 9], [7.0, 9, 7, 9, 9], ["a", "b", "a", "b", "b"]])
def test_parquet(parquet, ids):
    t = read(parquet(COLUMNS | {"id": ids, "remark": ["é"] * 5}))
    same = Trajectories.from_table(COLUMNS | {"id": ids}, notify=lambda text: None)
    assert t.fingerprint == same.fingerprint
    assert t.meta.get("node_names") == same.meta.get("node_names")


def test_parquet_with_dates_and_gaps(parquet):
    times = np.array(["2024-05-01T00:00:00", "2024-05-01T00:00:02"], dtype="M8[ns]")
    t = read(parquet({"date": times, "id": [1, 1], "x": [0.0, 1.0], "y": [1.0, 1.0]}))
    assert t.times.tolist() == [0, 2]
    t = read(parquet(COLUMNS | {"id": [1, 2, 1, 2, 2], "x": [0.0, 1, None, 3, 4]}))
    assert t.observed.sum() == 4


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (COLUMNS | {"id": [1, 2, None, 2, 2]}, "id: is missing in 1 rows"),
        (COLUMNS | {"id": [[1]] * 5}, "id: expected numbers or texts, found list<"),
        (COLUMNS | {"id": [1] * 5, "y": ["a"] * 5}, "y: expected numbers, found string"),
        (COLUMNS, "id: no column is called id"),
        ({name: [] for name in ("frame", "id", "x", "y")}, "no rows|expected numbers, found null"),
    ],
)
def test_bad_parquet(parquet, columns, words):
    with pytest.raises(InputError) as caught:
        read(parquet(columns))
    assert any(word in str(caught.value) for word in words.split("|"))


def test_text_that_is_called_parquet(tmp_path):
    pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    (tmp_path / "a.parquet").write_text(HEAD)
    with pytest.raises(InputError, match=r"a.parquet: is cut off, damaged or of another format"):
        read(tmp_path / "a.parquet")


def test_parquet_without_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_text(HEAD)
    with pytest.raises(ImportError, match=r"pip install 'spacetime-en\[parquet\]'"):
        read(tmp_path / "a.parquet")
