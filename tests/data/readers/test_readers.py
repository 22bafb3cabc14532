import numpy as np
import pytest

from spacetime_en import InputError
from spacetime_en.data import Task, simulate
from spacetime_en.data.readers import read

X = np.random.default_rng(0).standard_normal((2, 6, 4, 3))


def test_npz(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, v=2 * X, times=np.arange(6) / 2, charge=np.ones(4))
    t = read(tmp_path / "a.npz")
    assert np.array_equal(t.v, 2 * X)
    assert t.times[1] == 0.5
    assert t.charge.shape == (2, 4)


def test_npz_of_a_molecule_as_md17_has_it(tmp_path):
    np.savez(tmp_path / "a.npz", R=X[0], z=np.array([6, 6, 8, 1]), E=np.ones((6, 1)), F=X[0])
    t = read(tmp_path / "a.npz")
    assert np.array_equal(t.x[0], X[0])
    assert list(t.attributes) == ["atomic_number"]
    assert t.attributes["atomic_number"][0].tolist() == [6, 6, 8, 1]


def test_npz_with_nodes_that_are_not_always_there(tmp_path):
    x, observed = X.copy(), np.ones(X.shape[:3], dtype=bool)
    observed[0, 2:4, 1] = x[0, 2:4, 1] = False
    np.savez(tmp_path / "a.npz", x=x, observed=observed, per_frame_speed=X[..., 0])
    t = read(tmp_path / "a.npz")
    assert np.array_equal(t.observed, observed)
    assert np.array_equal(t.frame_attributes["speed"], np.where(observed, X[..., 0], 0))
    x[~observed] = np.nan
    np.savez(tmp_path / "b.npz", x=x)
    assert np.array_equal(read(tmp_path / "b.npz").observed, observed)
    assert read(tmp_path / "b.npz").meta["missing"] == "nan"
    x[0, 2, 1, 0] = 1
    np.savez(tmp_path / "c.npz", x=x)
    with pytest.raises(InputError, match=r"c.npz: x: of run 0, frame 2, node 1 only some"):
        read(tmp_path / "c.npz")


def test_nri_folder(tmp_path):
    for split, part in (("train", X[:1]), ("valid", X[1:])):
        np.save(tmp_path / f"loc_{split}_charged5.npy", part.swapaxes(2, 3))
        np.save(tmp_path / f"vel_{split}_charged5.npy", part.swapaxes(2, 3))
        np.save(tmp_path / f"charges_{split}_charged5.npy", np.ones((1, 4, 1)))
    t = read(tmp_path)
    assert np.array_equal(t.x, X)
    assert t.charge.shape == (2, 4)


def test_our_own_folder(tmp_path):
    simulate("charged", 3, save=[0, 5], out=tmp_path / "set")
    assert len(read(tmp_path / "set")) == 3


def test_h5md(tmp_path):
    h5py = pytest.importorskip("h5py", reason="the extra `h5md` is not installed")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("particles/all")
        group["position/value"], group["position/time"] = X[0], 0.25
        group["velocity/value"] = 3 * X[0]
        group["mass"] = np.arange(4.0)
        group["box/edges"] = np.array([5.0, 6.0, 7.0])
    t = read(tmp_path / "a.h5")
    assert np.array_equal(t.x[0], X[0])
    assert np.array_equal(t.v[0], 3 * X[0])
    assert t.times[:2].tolist() == [0, 0.25]
    assert t.attributes["mass"].shape == (1, 4)
    assert t.box[2, 2] == 7


def test_h5md_without_boundary_in_another_order_and_with_units(tmp_path):
    h5py = pytest.importorskip("h5py", reason="the extra `h5md` is not installed")
    order = np.random.default_rng(0).permuted(np.tile(np.arange(4), (6, 1)), axis=1)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("particles/all")
        group["position/value"] = np.take_along_axis(X[0], order[..., None], axis=1)
        group["position/time"] = np.arange(6.0)
        group["position/value"].attrs["unit"] = b"nm"
        group["position/time"].attrs["unit"] = "ps"
        group["id/value"] = order
        group["box/edges"] = np.ones(3)
        group["box"].attrs["boundary"] = ["none", "none", "none"]
    t = read(tmp_path / "a.h5")
    assert np.array_equal(t.x[0], X[0])
    assert t.box is None
    assert (t.meta["length_unit"], t.meta["time_unit"]) == ("nm", "ps")


@pytest.mark.parametrize("how", ["nan", "observed"])
def test_h5md_with_nodes_that_are_not_always_there(tmp_path, how):
    h5py = pytest.importorskip("h5py", reason="the extra `h5md` is not installed")
    order = np.random.default_rng(0).permuted(np.tile(np.arange(4), (6, 1)), axis=1)
    x, observed = X[0].copy(), np.ones((6, 4), dtype=bool)
    observed[2:4, 1] = False
    x[~observed] = np.nan if how == "nan" else 7
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("particles/all")
        group["position/value"] = np.take_along_axis(x, order[..., None], axis=1)
        group["position/time"] = np.arange(6.0)
        group["id/value"] = order
        if how == "observed":
            group["observed/value"] = np.take_along_axis(observed, order, axis=1)
    t = read(tmp_path / "a.h5")
    assert np.array_equal(t.observed[0], observed)
    assert np.array_equal(t.x[0][observed], X[0][observed])


def test_h5md_with_a_box_that_has_no_edges(tmp_path):
    h5py = pytest.importorskip("h5py", reason="the extra `h5md` is not installed")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("particles/all")
        group["position/value"], group["position/time"] = X[0], 0.25
        group.create_group("box").attrs["boundary"] = ["periodic"] * 3
    with pytest.raises(InputError, match=r"a.h5: box: .* periodic, but the edges are missing"):
        read(tmp_path / "a.h5")


def write(tmp_path, how):
    if how == "truncated.npz":
        np.savez(tmp_path / how, x=X)
        (tmp_path / how).write_bytes((tmp_path / how).read_bytes()[:200])
    elif how == "wrong.npz":
        np.savez(tmp_path / how, y=X)
    elif how == "pickle.npz":
        np.savez(tmp_path / how, x=np.array([{}], dtype=object))
    elif how == "nan.npz":
        np.savez(tmp_path / how, x=X * np.nan)
    elif how == "words.npz":
        np.savez(tmp_path / how, x=np.array(["a", "b"]))
    elif how in ("text.h5", "thing.docx"):
        (tmp_path / how).write_text("hello")
    elif how == "folder":
        (tmp_path / how).mkdir()
    return tmp_path / how


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated.npz", "is cut off, damaged or no .npz"),
        ("wrong.npz", r"expected an array 'x' of positions, found \['y'\]"),
        ("pickle.npz", "'x.npy': expected numbers, found values of type object"),
        ("nan.npz", "no node was observed in any frame"),
        ("words.npz", "'x.npy': expected numbers, found values of type <U1"),
        ("text.h5", "is cut off, damaged or of another format"),
        ("thing.docx", "no reader for '.docx'; known are .csv"),
        ("folder", "no data set of this package, no tables and no loc_"),
        ("nowhere.npz", "there is no such file or folder"),
    ],
)
def test_bad_files_are_told_in_one_sentence(tmp_path, how, message):
    with pytest.raises(InputError, match=message):
        read(write(tmp_path, how))


@pytest.mark.slow
def test_ase_reads_extxyz(tmp_path):
    ase = pytest.importorskip("ase", reason="the extra `ase` is not installed")
    io = pytest.importorskip("ase.io")
    frames = []
    for x in X[0]:
        atoms = ase.Atoms("H2O" + "C", positions=x, cell=[9, 9, 9], pbc=True)
        atoms.set_velocities(2 * x)
        frames.append(atoms)
    io.write(tmp_path / "a.extxyz", frames)
    t = read(tmp_path / "a.extxyz")
    np.testing.assert_allclose(t.x[0], X[0], atol=1e-7)
    np.testing.assert_allclose(t.v[0], 2 * X[0], atol=1e-6)
    assert t.attributes["atomic_number"][0].tolist() == [1, 1, 8, 6]
    assert t.box[0, 0] == 9
    io.write(tmp_path / "b.extxyz", [frames[0], frames[1][:2]])
    with pytest.raises(InputError, match="the number of atoms changes"):
        read(tmp_path / "b.extxyz")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mdanalysis_reads_adenylate_kinase():
    files = pytest.importorskip("MDAnalysisTests.datafiles", reason="MDAnalysisTests is missing")
    t = read(files.DCD, topology=files.PSF, select="name CA")
    assert t.x.shape == (1, 98, 214, 3)
    assert t.meta["length_unit"] == "Å"
    assert len(Task.from_trajectories(t).test) > 0
    t = read(files.TRR, topology=files.GRO, select="name CA")
    assert t.box is not None
    assert np.abs(t.v).max() > 0
    with pytest.raises(InputError, match=r"topology: .* has no atom names"):
        read(files.DCD)
    with pytest.raises(InputError, match="selects no atom"):
        read(files.DCD, topology=files.PSF, select="name XX")
