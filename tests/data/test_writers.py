import tracemalloc

import numpy as np
import pytest

from spacetime_en import InputError
from spacetime_en.data import Trajectories
from spacetime_en.data.readers import read
from spacetime_en.data.shards import ShardWriter
from spacetime_en.data.writers import open_forecasts, open_writer

RNG = np.random.default_rng(0)
SEVERAL = ["set", "a.npz"]
H5MD = ["a.h5", "a.hdf5", "a.h5md", "A.H5"]
ASE = ["a.xyz", "a.extxyz", "a.traj"]


def runs(num=3, frames=4, nodes=5, dims=3, **fields):
    """Random runs, not evenly spaced in time."""
    rng = np.random.default_rng(0)
    x, v = rng.standard_normal((2, num, frames, nodes, dims))
    times = 7 + np.cumsum(rng.random(frames) + 0.1)
    return Trajectories.from_arrays(x, v, **({"times": times, "steps": times // 0.1} | fields))


def write(path, t, parts=1):
    """Write `t` in pieces of whole runs."""
    with open_writer(path, like=t) as writer:
        for rows in np.array_split(np.arange(len(t)), parts):
            attributes = {name: stacked[rows] for name, stacked in t.attributes.items()}
            writer.append(
                Trajectories(t.x[rows], t.v[rows], t.steps, t.times, attributes, t.meta, t.box)
            )
    return read(path)


def assert_same(a, b):
    for name in ("x", "v", "times"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert list(a.attributes) == list(b.attributes)
    for name in a.attributes:
        assert np.array_equal(a.attributes[name], b.attributes[name]), name
    assert (a.box is None) == (b.box is None)
    assert a.box is None or np.array_equal(a.box, b.box)
    assert a.measured_velocities == b.measured_velocities


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("box", [None, [3.0, 4.0], [[3.0, 0.0], [1.0, 4.0]]])
def test_folders_and_npz_give_back_every_bit(tmp_path, name, box):
    attributes = {"charge": RNG.random((3, 5)), "spring": RNG.random((3, 5, 5))}
    t = runs(dims=2, box=box, attributes=attributes, meta={"length_unit": "m"})
    back = write(tmp_path / "new" / name, t, parts=2)
    assert_same(t, back)
    assert np.array_equal(t.steps, back.steps)
    assert [p.name for p in (tmp_path / "new").iterdir()] == [name]  # nothing else is left
    if name == "set":
        assert back.meta == t.meta


@pytest.mark.parametrize("name", H5MD)
@pytest.mark.parametrize("box", [None, [3.0, 4.0], [[3.0, 0.0], [1.0, 4.0]]])
def test_h5md_gives_back_one_run(tmp_path, name, box):
    h5py = pytest.importorskip("h5py", reason="the extra `h5md` is not installed")
    attributes = {key: RNG.random((1, 5)) for key in ("mass", "charge", "species")}
    units = {"length_unit": "nm", "time_unit": "ps"}
    t = runs(1, dims=2, box=box, attributes=attributes, meta=units)
    back = write(tmp_path / name, t)
    assert_same(t, back)
    assert {key: back.meta[key] for key in units} == units
    assert [p.name for p in tmp_path.iterdir()] == [name]
    with h5py.File(tmp_path / name) as file:  # what the specification asks for beyond our reader
        assert file["h5md"].attrs["version"].tolist() == [1, 1]
        assert np.array_equal(file["particles/all/velocity/time"], t.times)
        assert file["particles/all/box"].attrs["dimension"] == 2
        assert file["particles/all/velocity/value"].attrs["unit"] == "nm ps-1"


@pytest.mark.parametrize("name", [*SEVERAL, "a.h5"])
@pytest.mark.parametrize("box", [None, [1.5, 1.5, 1.5]])
def test_velocities_from_differences_stay_what_they_are(tmp_path, name, box):
    if name == "a.h5":
        pytest.importorskip("h5py", reason="the extra `h5md` is not installed")
    x = RNG.random((1, 6, 4, 3))
    t = Trajectories.from_arrays(x, times=np.arange(6) / 3, box=box)
    back = write(tmp_path / name, t)
    assert not back.measured_velocities
    assert_same(t, back)


@pytest.mark.parametrize("name", [*SEVERAL, "a.h5"])
def test_one_frame_is_enough(tmp_path, name):
    if name == "a.h5":
        pytest.importorskip("h5py", reason="the extra `h5md` is not installed")
    t = runs(1, frames=1)
    assert_same(t, write(tmp_path / name, t))


def test_a_set_in_shards_goes_into_one_file_run_by_run(tmp_path):
    for shard in range(2):
        with ShardWriter(tmp_path / "set", shard, 2, 3) as writer:
            writer.append(runs(3, attributes={"charge": RNG.random((3, 5))}))
    t = Trajectories.open(tmp_path / "set")
    assert_same(t, write(tmp_path / "a.npz", t, parts=6))


@pytest.mark.parametrize("name", SEVERAL)
def test_large_sets_need_little_memory(tmp_path, name):
    one, num = runs(1, frames=100, nodes=20), 400  # 38 MB in all
    x = np.broadcast_to(one.x, (num, 100, 20, 3))
    like = Trajectories(x, x, one.steps, one.times)
    tracemalloc.start()
    with open_writer(tmp_path / name, like=like) as writer:
        for _ in range(num):
            writer.append(one)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6  # checksums read 4 MB at a time


def interrupt(path, error):
    """Write everything, and fail before the end."""
    t = runs(1)
    with open_writer(path, like=t) as writer:
        writer.append(t)
        assert not path.exists()
        raise error


@pytest.mark.parametrize("name", [*SEVERAL, "a.h5"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_what_is_not_finished_leaves_nothing(tmp_path, name, error):
    if name == "a.h5":
        pytest.importorskip("h5py", reason="the extra `h5md` is not installed")
    with pytest.raises(error):
        interrupt(tmp_path / name, error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", SEVERAL)
def test_too_few_runs_are_no_file(tmp_path, name):
    with (
        pytest.raises(InputError, match="expected 3 runs, found 2"),
        open_writer(tmp_path / name, like=runs(3)) as writer,
    ):
        writer.append(runs(2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [*SEVERAL, *H5MD, *ASE])
def test_what_is_there_is_not_touched(tmp_path, name):
    (tmp_path / name).write_text("precious")
    with (
        pytest.raises(InputError, match=r"exists already; choose another name or delete it\.$"),
        open_writer(tmp_path / name, like=runs(1)),
    ):
        pass
    assert (tmp_path / name).read_text() == "precious"


def refused(path, t):
    """The sentence with which `t` is rejected, before anything is written."""
    with pytest.raises(InputError) as error, open_writer(path, like=t):
        pytest.fail("it was taken")
    assert list(path.parent.iterdir()) == []
    return str(error.value)


def test_what_a_format_cannot_hold_is_refused_at_once(tmp_path):
    known = "known are .extxyz, .h5, .h5md, .hdf5, .npz, .traj, .xyz, no ending for a folder, and"
    assert known in refused(tmp_path / "a.docx", runs())
    t = runs(attributes={"box": np.ones(5)})
    assert "'box' cannot be an attribute in .npz; use a folder" in refused(tmp_path / "a.npz", t)
    pytest.importorskip("h5py", reason="the extra `h5md` is not installed")
    sentence = refused(tmp_path / "a.h5", runs())
    assert "holds one run, found 3; use a folder (a name without ending) or .npz" in sentence
    for t in (
        runs(1, attributes={"depth": np.ones(5)}),
        runs(1, attributes={"charge": np.ones((1, 5, 5))}),
    ):
        assert "holds mass, charge, species of nodes" in refused(tmp_path / "a.h5", t)


@pytest.mark.slow
@pytest.mark.parametrize("name", ASE)
@pytest.mark.parametrize("box", [None, [9.0, 8.0, 7.0], [[9.0, 0, 0], [1, 8.0, 0], [0, 2, 7.0]]])
@pytest.mark.parametrize("attributes", [("mass", "atomic_number"), ("species",), ()])
def test_ase_gives_back_one_run(tmp_path, name, box, attributes):
    ase = pytest.importorskip("ase", reason="the extra `ase` is not installed")
    io = pytest.importorskip("ase.io")
    numbers = np.array([1, 8, 1, 79, 0.0])
    known = {"mass": np.array([2.0, 16, 1.5, 197, 12]), "atomic_number": numbers}
    known["species"] = numbers
    times = 0.5 * np.arange(4) * ase.units.fs
    t = runs(1, times=times, box=box, attributes={key: known[key] for key in attributes})
    write(tmp_path / name, t)
    back = read(tmp_path / name, time_step=0.5)
    digits = 1e-15 if name == "a.traj" else 1e-8
    np.testing.assert_allclose(back.x, t.x, rtol=0, atol=digits)
    np.testing.assert_allclose(back.v, t.v, rtol=0, atol=2 * digits)
    np.testing.assert_allclose(back.times, times)
    assert (back.box is None) == (box is None)
    assert box is None or np.array_equal(back.box, t.box)
    expected = numbers if attributes else np.zeros(5)  # X
    assert np.array_equal(back.attributes["atomic_number"][0], expected)
    if "mass" in attributes:
        assert np.array_equal(back.attributes["mass"], t.attributes["mass"])
    assert [atoms.info["time"] for atoms in io.read(tmp_path / name, ":")] == times.tolist()
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ASE)
def test_ase_differences_and_interruptions(tmp_path, name):
    ase = pytest.importorskip("ase", reason="the extra `ase` is not installed")
    with pytest.raises(KeyboardInterrupt):
        interrupt(tmp_path / name, KeyboardInterrupt)
    assert list(tmp_path.iterdir()) == []
    t = Trajectories.from_arrays(RNG.random((1, 6, 4, 3)), times=np.arange(6) * ase.units.fs)
    write(tmp_path / name, t)
    back = read(tmp_path / name, time_step=1.0)
    assert not back.measured_velocities
    np.testing.assert_allclose(back.v, t.v, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ASE)
def test_what_cannot_be_atoms_is_refused_at_once(tmp_path, name):
    pytest.importorskip("ase", reason="the extra `ase` is not installed")
    for fields, sentence in (
        (dict(num=2), "holds one run, found 2"),
        (dict(dims=2), "holds three dimensions, found 2"),
        (
            dict(attributes={"charge": np.ones(5)}),
            "holds mass, species of nodes, found 'charge'",
        ),
        (dict(attributes={"species": np.full(5, 119)}), "from 0 to 118 as 'species', found 119"),
        (dict(attributes={"species": np.full(5, 1.5)}), "from 0 to 118 as 'species', found 1.5"),
        (dict(attributes={"mass": np.zeros(5)}), "positive masses"),
    ):
        assert sentence in refused(tmp_path / name, runs(**({"num": 1} | fields)))
    tiny = Trajectories.from_arrays(1e-10 * RNG.random((1, 4, 5, 3)))
    if name == "a.traj":
        assert write(tmp_path / name, tiny).x[0, 0, 0, 0] == tiny.x[0, 0, 0, 0]
    else:
        assert "keeps eight decimals, and x is" in refused(tmp_path / name, tiny)


# --- nodes that come and go -----------------------------------------------------------------------


def crowd():
    """Two people after each other, a third with a gap."""
    rows = {"frame": [0, 1, 3, 4, 0, 2, 4], "id": [7, 7, 8, 8, 9, 9, 9]}
    rows |= {"x": RNG.random(7), "y": RNG.random(7), "size": RNG.random(7)}
    return Trajectories.from_table(rows, attributes=["size"], notify=lambda text: None)


@pytest.mark.parametrize("name", SEVERAL)
def test_nodes_that_come_and_go_come_back(tmp_path, name):
    t = crowd()
    with open_writer(tmp_path / name, like=t) as writer:
        writer.append(t)
    back = read(tmp_path / name)
    assert_same(t, back)
    for field in ("observed", "ids"):
        assert np.array_equal(getattr(t, field), getattr(back, field))
    assert np.array_equal(t.frame_attributes["size"], back.frame_attributes["size"])


def test_h5md_keeps_gaps_and_refuses_who_comes_and_goes(tmp_path):
    pytest.importorskip("h5py", reason="the extra `h5md` is not installed")
    x = RNG.random((1, 5, 3, 2))
    x[0, 1:3, 0] = np.nan
    t = Trajectories.from_arrays(x)
    with open_writer(tmp_path / "a.h5", like=t) as writer:
        writer.append(t)
    back = read(tmp_path / "a.h5")
    assert_same(t, back)
    assert np.array_equal(t.observed, back.observed)
    with pytest.raises(InputError, match=r"b.h5: a .h5 file holds no nodes that come and go; use"):
        write(tmp_path / "b.h5", crowd())


# --- tables of forecasts --------------------------------------------------------------------------


def forecast(path, t, batches=2, **options):
    """Two targets after each of four windows, in batches."""
    runs, last = np.array([0, 0, 1, 1]), np.array([1, 2, 1, 2])
    horizon = np.tile(t.times[1] * np.array([1.0, 3.0]), (4, 1))
    x = RNG.random((4, 2, 2, 2))
    mask = np.ones((4, 2, 2), dtype=bool)
    mask[3, 1, 0] = False
    ids = np.array([[7, 9], [9, 7], [8, 9], [9, 8]])
    with open_forecasts(path, like=t) as table:
        for part in np.array_split(np.arange(4), batches):
            table.append(
                runs[part], last[part], horizon[part], x[part], 2 * x[part], ids[part], mask[part]
            )
    return x


def two_recordings(names=("f", "who", "left", "up"), people=(7, 8, 9), first=(100, 200)):
    rows = {name: [] for name in ("scene", *names)}
    for scene, start in zip("ab", first, strict=True):
        for i in range(5):
            for person in people[i % 2 :]:
                cells = (scene, start + 10 * i, person, RNG.random(), RNG.random())
                for name, cell in zip(rows, cells, strict=True):
                    rows[name].append(cell)
    f, who, *xy = names
    return Trajectories.from_table(
        rows, frame=f, id=who, positions=xy, time_step=0.4, notify=lambda text: None
    )


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "A.TXT", "a.parquet"])
def test_forecasts_have_the_users_own_names(tmp_path, name):
    if name.endswith("parquet"):
        parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `parquet`")
    t = two_recordings()
    x = forecast(tmp_path / "new" / name, t)
    assert [p.name for p in (tmp_path / "new").iterdir()] == [name]
    if name.endswith("parquet"):
        columns = parquet.read_table(tmp_path / "new" / name).to_pydict()
    else:
        lines = (tmp_path / "new" / name).read_text().splitlines()
        head, *rows = [line.split("," if name == "a.csv" else "\t") for line in lines]
        columns = dict(zip(head, zip(*rows, strict=True), strict=True))
    assert list(columns) == ["recording", "last_f", "f", "who", "left", "up", "vx", "vy"]
    assert list(columns["recording"]) == ["a"] * 8 + ["b"] * 7
    assert [int(i) for i in columns["last_f"][:5]] == [110, 110, 110, 110, 120]
    assert [int(i) for i in columns["f"][:5]] == [120, 120, 140, 140, 130]
    assert [int(i) for i in columns["who"][:6]] == [7, 9, 7, 9, 9, 7]
    assert float(columns["up"][0]) == x[0, 0, 0, 1]
    assert float(columns["vy"][0]) == 2 * x[0, 0, 0, 1]


def test_names_of_people_and_times_come_back(tmp_path):
    t = two_recordings(names=("frame", "id", "x", "y"), people=tuple("abcdefghij"))
    forecast(tmp_path / "a.csv", t)
    assert (tmp_path / "a.csv").read_text().splitlines()[1].startswith("a,110,120,h,")
    rows = {"t": [0.5, 1.0, 1.5], "id": [3, 3, 3], "x": [0.0, 1, 2], "y": [0.0, 0, 0]}
    t = Trajectories.from_table(rows, notify=lambda text: None)
    with open_forecasts(tmp_path / "b.csv", like=t) as table:
        one = np.zeros(1, dtype=int)
        table.append(one, one + 2, np.full((1, 1), 0.25), *np.ones((2, 1, 1, 1, 2)))
    assert (tmp_path / "b.csv").read_text() == "last_t,t,id,x,y,vx,vy\n1.5,1.75,3,1.0,1.0,1.0,1.0\n"


def test_what_stands_in_a_strangers_meta_does_no_harm(tmp_path):
    t = runs(2, dims=2)
    odd = {"columns": {"frame": "x", "id": 3, "positions": ["x", "x"], "velocities": "vv"}}
    t.meta.update(odd | {"first_frames": [1], "recordings": ["only one"], "node_names": []})
    forecast(tmp_path / "a.csv", t)
    assert (tmp_path / "a.csv").read_text().startswith("recording,last_frame,frame,id,x,y,vx,vy\n")


def test_forecasts_go_only_into_tables(tmp_path):
    with pytest.raises(InputError, match=r"a.npz: no table; expected a name with .csv, .tsv"):
        forecast(tmp_path / "a.npz", two_recordings())
    (tmp_path / "a.csv").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        forecast(tmp_path / "a.csv", two_recordings())
    with pytest.raises(IndexError):
        forecast(tmp_path / "b.csv", crowd())  # has one recording
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]
