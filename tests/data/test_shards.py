"""A data set from a stranger: its metadata are checked, and it leads nowhere else."""

import json
import os

import numpy as np
import pytest

from spacetime_en import InputError
from spacetime_en.data import Trajectories
from spacetime_en.data.shards import ShardWriter, checksum, is_whole, read_meta, shard_name

X = np.random.default_rng(0).standard_normal((3, 6, 4, 2))


@pytest.fixture
def shard(tmp_path):
    made = Trajectories.from_arrays(X, attributes={"mass": np.ones(4)}, meta={"unit": "m"})
    made.save(tmp_path / "set")
    return tmp_path / "set" / shard_name(0, 1)


def rewrite(shard, change):
    meta = json.loads((shard / "meta.json").read_text())
    change(meta)
    (shard / "meta.json").write_text(json.dumps(meta))


def refused(folder, verify=False):
    with pytest.raises(InputError) as caught:
        Trajectories.open(folder, verify=verify)
    sentence = str(caught.value)
    assert str(folder) in sentence
    assert "\n" not in sentence
    assert len(sentence) < 500
    return sentence


def entry(*path, value):
    def change(meta):
        for key in path[:-1]:
            meta = meta[key]
        meta[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (entry("format", value=3), "its format is 3"),
        (entry("format", value="1"), "its format is '1'"),
        (entry("num", value="3"), "num: expected a positive whole number, found '3'"),
        (entry("num", value=10**30), "num: expected a positive whole number"),
        (entry("num", value=0), "num: expected a positive whole number"),
        (entry("num", value=2), "x.npy has another shape than it should"),
        (entry("num", value=True), "num: expected a positive whole number"),
        (entry("shards", value=10**15), "says that it is of shard-00000-of-1000000000000000"),
        (entry("shard", value=3), "a shard cannot be renamed"),
        (entry("arrays", value=["x", "v", "../../victim"]), "'../../victim' cannot be a name"),
        (entry("arrays", value=["x", "v", 3]), "arrays[2]: expected text, found 3"),
        (entry("arrays", value=["x", "v", "x"]), "arrays: expected x, v and others, each once"),
        (entry("arrays", value=["x"]), "arrays: expected x, v and others, each once"),
        (entry("arrays", value=["x", "v", "charge"]), "charge.npy"),
        (entry("arrays", value="xv"), "arrays: expected"),
        (entry("checksum", value=None), "checksum: expected text"),
        (entry("statistics", value=[]), "statistics: expected"),
        (entry("spec", value=None), "spec: expected"),
        (entry("spec", "steps", value=[0, 1, 2, 3, 4, 10**30]), "spec.steps"),
        (entry("spec", "steps", value=[0, 1, 2, 3, 4, 0.5]), "spec.steps"),
        (entry("spec", "steps", value=[0, 1, 2, 3, 3, 5]), "steps: expected 6 increasing numbers"),
        (entry("spec", "steps", value=[0]), "steps: expected 6 increasing numbers"),
        (entry("spec", "times", value=[5, 4, 3, 2, 1, 0]), "times: expected 6 increasing numbers"),
        (entry("spec", "times", value=[0, 1, 2, 3, 4, None]), "spec.times"),
        (entry("spec", "times", value=[0, 1, 2, 3, 4, float("nan")]), "times: expected 6 increas"),
        (entry("spec", "times", value=[0, 1, 2, 3, 4, float("inf")]), "times: expected 6 increas"),
        (entry("spec", "box", value=[[1, 0], [0, 0]]), "box: expected a cell with a volume"),
        (entry("spec", "box", value=[[1, 0], [0]]), "box: cannot be made an array"),
        (entry("spec", "box", value=[1, 1]), "spec.box"),
        (entry("spec", "box", value=[]), "box: expected 2 edge lengths"),
        (entry("spec", "lengths", value=[6, 6]), "lengths: expected 3 numbers of frames from 1"),
        (entry("spec", "lengths", value=[6, 6, 7]), "lengths: expected 3 numbers of frames from 1"),
        (entry("spec", "lengths", value=[6, 6, 0]), "spec.lengths"),
        (entry("spec", "meta", value=None), "spec.meta"),
        (entry("spec", "meta", value={"up": "north"}), "meta: up: expected real numbers"),
        (entry("spec", "meta", value={"system": {}}), "meta: system: expected a text"),
        (lambda meta: meta.pop("num"), "num"),
        (lambda meta: meta.pop("spec"), "spec"),
    ],
)
def test_what_meta_says_is_typed_and_bounded(shard, change, words):
    rewrite(shard, change)
    assert words in refused(shard.parent)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not valid JSON"),
        (b"[]", "expected named entries"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b'{"num": 1, "num": 2}', "'num' stands twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"num": ' + b"9" * 10_000 + b"}", "not valid JSON"),
    ],
)
def test_meta_is_json(shard, content, words):
    (shard / "meta.json").write_bytes(content)
    assert words in refused(shard.parent)


def test_sets_from_before_formats_were_counted_are_read(shard):
    rewrite(shard, lambda meta: meta.pop("format"))
    assert len(Trajectories.open(shard.parent, verify=True)) == 3


def test_sets_without_gaps_are_written_as_before(shard):
    meta = json.loads((shard / "meta.json").read_text())
    assert meta["format"] == 1
    assert sorted(path.name for path in shard.iterdir()) == [
        "mass.npy",
        "meta.json",
        "v.npy",
        "x.npy",
    ]
    rewrite(shard, lambda meta: meta["spec"].pop("frame_attributes"))
    assert len(Trajectories.open(shard.parent, verify=True)) == 3


@pytest.fixture
def tracks(tmp_path):
    x = np.where(np.arange(6)[:, None, None] == 2, np.nan, X)
    ids = np.broadcast_to(np.arange(4), (3, 6, 4))
    made = Trajectories.from_arrays(x, ids=ids, frame_attributes={"age": ids})
    made.save(tmp_path / "tracks")
    return tmp_path / "tracks" / shard_name(0, 1)


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("observed", np.ones((3, 6, 4)), "observed.npy: expected booleans, row by row, found <f8"),
        ("observed", np.ones((3, 6, 3), bool), "observed: expected shape (3, 6, 4)"),
        ("ids", np.zeros((3, 6, 4), np.int32), "ids.npy: expected whole numbers of 8 bytes"),
        ("ids", np.full((3, 6, 4), -1), "checksum"),
        ("age", np.ones((3, 4)), "age: expected shape (3, 6, 4), found (3, 4)"),
    ],
)
def test_arrays_of_tracks_are_checked(tracks, name, array, words):
    assert json.loads((tracks / "meta.json").read_text())["format"] == 2
    np.save(tracks / f"{name}.npy", array)
    assert words in refused(tracks.parent, verify=words == "checksum")


@pytest.mark.parametrize("names", [["age", "age"], ["nothing"], ["x"], "age"])
def test_frame_attributes_are_arrays(tracks, names):
    rewrite(tracks, entry("spec", "frame_attributes", value=names))
    assert "frame_attributes: expected" in refused(tracks.parent)


def test_nodes_are_checked_when_the_checksum_is(tracks):
    np.save(tracks / "ids.npy", np.full((3, 6, 4), -1))
    files = [tracks / f"{name}.npy" for name in read_meta(tracks).arrays]
    rewrite(tracks, entry("checksum", value=checksum(files, read_meta(tracks).spec)))
    assert "ids: expected a node's number of 0 or more" in refused(tracks.parent, verify=True)


def header(descr="<f8", shape=(3, 4), fortran_order=False):
    text = f"{{'descr': {descr!r}, 'fortran_order': {fortran_order}, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (header() + bytes(96), None),
        (header("<f4") + bytes(48), None),
        (header(">f8") + bytes(96), "little-endian, row by row, found >f8"),
        (header("<i8") + bytes(96), "expected real numbers of 8 or 4 bytes"),
        (header("<c16") + bytes(192), "expected real numbers of 8 or 4 bytes"),
        (header("<M8[s]") + bytes(96), "expected numbers, found values of type datetime64"),
        (header("|O") + bytes(96), "expected numbers, found values of type object"),
        (header("|V0"), "expected numbers, found values of type"),
        (header(fortran_order=True) + bytes(96), "column by column"),
        (header() + bytes(95), "takes 96 bytes, 95 are there"),
        (header() + bytes(97), "takes 96 bytes, 97 are there"),
        (header(shape=(10**12, 4)), "is cut off or damaged"),
        (header(shape=(2**40, 2**40)), "is cut off or damaged"),
        (header(shape=(2**32, 2**32)) + bytes(96), "is cut off or damaged"),  # 0 in 64 bits
        (header(shape=(-3, -4)) + bytes(96), "is cut off or damaged"),
        (header(shape=()) + bytes(8), "another shape than it should"),
        (header(shape=(0, 4)), "is empty"),
        (header(shape=(3, 5)) + bytes(120), "mass: expected shape (3, 4) or (3, 4, 4)"),
        (header(shape="x"), "is no .npy file of an array"),
        (header().replace(b"(3, 4)", b"(" * 5000), "is no .npy file of an array"),
        (b"\x93NUMPY\x03\x00" + header()[8:] + bytes(96), "version 3.0 is not known"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "is no .npy file of an array"),
        (b"", "is no .npy file of an array"),
        (b"hello", "is no .npy file of an array"),
    ],
)
def test_arrays_are_what_their_length_allows(shard, content, words):
    (shard / "mass.npy").write_bytes(content)
    if words is None:
        assert not Trajectories.open(shard.parent).attributes["mass"][:].any()
    else:
        assert words in refused(shard.parent)


def test_values_are_looked_at_when_the_checksum_is(shard):
    np.save(shard / "mass.npy", np.full((3, 4), np.inf))
    files = [shard / f"{name}.npy" for name in ("x", "v", "mass")]
    fresh = checksum(files, read_meta(shard).spec)
    rewrite(shard, entry("checksum", value=fresh))
    assert "mass: NaN or infinite values at run 0" in refused(shard.parent, verify=True)


@pytest.mark.parametrize("name", ["x.npy", "meta.json"])
def test_links_inside_a_folder_are_not_followed(shard, name, tmp_path):
    (tmp_path / "elsewhere").write_bytes((shard / name).read_bytes())
    (shard / name).unlink()
    (shard / name).symlink_to(tmp_path / "elsewhere")
    assert "is a link" in refused(shard.parent)
    assert "is a link" in refused(shard.parent, verify=True)


def test_a_link_in_place_of_a_shard_is_not_followed(shard, tmp_path):
    shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    assert "is a link" in refused(shard.parent)
    # The folder that the user names may be one.
    (tmp_path / "set").rename(tmp_path / "real")
    shard.parent.symlink_to(tmp_path / "real")
    (tmp_path / "real" / shard.name).unlink()
    (tmp_path / "elsewhere").rename(tmp_path / "real" / shard.name)
    assert len(Trajectories.open(tmp_path / "set")) == 3


@pytest.mark.parametrize("name", ["x.npy", "meta.json"])
def test_pipes_are_no_files(shard, name):
    (shard / name).unlink()
    os.mkfifo(shard / name)
    assert "is no regular file" in refused(shard.parent)


def test_names_are_checked_when_they_are_written(tmp_path):
    good = Trajectories.from_arrays(X, attributes={"mass": np.ones(4)})
    good.attributes["../../victim"] = good.attributes.pop("mass")
    with pytest.raises(InputError, match="cannot be a name"):
        good.save(tmp_path / "a" / "b" / "set")
    assert not (tmp_path / "victim.npy").exists()


def test_meta_that_is_no_json_is_refused_before_anything_is_written(tmp_path):
    odd = Trajectories.from_arrays(X, meta={"unit": {1, 2}})
    with pytest.raises(InputError, match="meta: cannot be written as JSON"):
        odd.save(tmp_path / "set")
    assert not list(tmp_path.glob("set/*"))


def test_shards_have_lengths_of_their_own(tmp_path):
    parts = [Trajectories.from_runs([np.zeros((a, 2, 1)), np.zeros((4, 2, 1))]) for a in (4, 2, 3)]
    for i, part in enumerate(parts):
        with ShardWriter(tmp_path / "set", i, 3, 2) as shard:
            shard.append(part)
        assert is_whole(tmp_path / "set") == (i == 2)
    opened = Trajectories.open(tmp_path / "set", verify=True)
    assert opened.lengths.tolist() == [4, 4, 2, 4, 3, 4]


def test_shards_of_two_sets_are_no_set(shard):
    with ShardWriter(shard.parent, 1, 2, 3) as other:
        other.append(Trajectories.from_arrays(X))
    assert "holds shards of several data sets" in refused(shard.parent)
