"""Motion capture: forward kinematics, real-world files, and the measured data if present."""

import io
import tarfile

import numpy as np
import pytest

from spacetime_en import InputError
from spacetime_en.data import Trajectories, Windows, load_task
from spacetime_en.data.datasets.mocap import find_motions
from spacetime_en.data.readers import read
from spacetime_en.data.readers.mocap import MotionFiles, parse_amc, parse_asf, rotation
from spacetime_en.evaluation import measure_errors
from spacetime_en.nn.models.trivial import LastFrame, StraightLine
from tests.data.cmu import CMU, needs_cmu
from tests.data.files import AMC, ASF


def turn(axis, degrees):
    """About one axis, from the definition."""
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    i, j = {"x": (1, 2), "y": (2, 0), "z": (0, 1)}[axis]
    matrix = np.eye(3)
    matrix[i, i] = matrix[j, j] = c
    matrix[i, j], matrix[j, i] = -s, s
    return matrix


def test_rotations_are_about_x_then_y_then_z():
    angles = np.deg2rad([10.0, 20.0, 30.0])
    expected = turn("z", 30) @ turn("y", 20) @ turn("x", 10)
    assert np.allclose(rotation(*angles), expected, atol=1e-15)


def test_forward_kinematics_is_what_the_format_says():
    x = parse_asf(ASF).positions(parse_amc(AMC))
    assert x.shape == (2, 3, 3)
    # Without angles: the pose of the skeleton file, moved to the root.
    assert np.allclose(x[0], [[1, 2, 3], [1, 0, 3], [1, -1.5, 3]])
    root = turn("x", 90)
    own = turn("z", 20)
    thigh = root @ own @ turn("z", 30) @ turn("y", 20) @ turn("x", 10) @ own.T
    own = turn("x", 90)
    shin = thigh @ own @ turn("x", 40) @ own.T
    knee = np.array([1, 2, 3]) + 2.0 * thigh @ [0, -1, 0]
    assert np.allclose(x[1], [[1, 2, 3], knee, knee + 1.5 * shin @ [0, -1, 0]])


def test_skeletons_beside_trials_and_names_that_repeat(tmp_path):
    for subject, size in (("a", 2.0), ("b", 3.0)):
        (tmp_path / subject).mkdir()
        skeleton = ASF.replace("length 2.0", f"length {size}")
        assert subject == "a" or skeleton != ASF
        (tmp_path / subject / "skeleton.asf").write_text(skeleton)
        (tmp_path / subject / f"walk_{subject}.amc").write_text(AMC)
    found = read(tmp_path)
    assert found.meta["trials"] == ["walk_a", "walk_b"]
    thighs = np.linalg.norm(found.x[:, 0, 1] - found.x[:, 0, 0], axis=-1)
    assert np.allclose(thighs, [2.0, 3.0])
    (tmp_path / "b" / "walk_b.amc").rename(tmp_path / "b" / "walk_a.amc")
    with pytest.raises(InputError, match="two trials or skeletons are called walk_a"):
        read(tmp_path)
    (tmp_path / "lost").mkdir()
    (tmp_path / "b" / "walk_a.amc").rename(tmp_path / "lost" / "run_1.amc")
    with pytest.raises(InputError, match=r"no skeleton for the trial run_1; expected one run\.asf"):
        read(tmp_path)
    (tmp_path / "b" / "run.asf").write_text(ASF)  # the subject's own is better than the only one
    (tmp_path / "lost" / "skeleton.asf").write_text(ASF.replace("length 2.0", "length 9.0"))
    assert np.linalg.norm(read(tmp_path).x[0, 0, 1] - read(tmp_path).x[0, 0, 0]) < 3
    (tmp_path / "run.asf").write_text(ASF)
    with pytest.raises(InputError, match="several skeletons for the trial run_1"):
        read(tmp_path)


def test_a_folder_and_a_tar_file_of_it_are_runs_of_different_lengths(tmp_path):
    folder = tmp_path / "all" / "07"
    folder.mkdir(parents=True)
    (folder / "07.asf").write_text(ASF)
    (folder / "07_01.amc").write_text(AMC)
    (folder / "07_02.AMC").write_text(AMC + AMC.split(":DEGREES\n")[1])
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "all", "all")
    for path in (tmp_path / "all", tmp_path / "all.tar.gz"):
        found = read(path)
        assert found.x.shape == (2, 4, 3, 3)
        assert found.lengths.tolist() == [2, 4]
        assert found.meta["trials"] == ["07_01", "07_02"]
        assert found.meta["joints"] == ["root", "thigh", "shin"]
        assert found.meta["edges"] == [(1, 0), (2, 1)]
        assert not found.measured_velocities
        assert np.allclose(np.diff(found.times), 1 / 120)
        assert np.allclose(np.diff(read(path, time_step=0.01).times), 0.01)
        # As in the tasks: joints are named, bones connect them.
        assert list(found.attributes) == ["is_root", "is_thigh", "is_shin", "bone"]
        assert np.asarray(found.attributes["bone"][1]).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    found.save(tmp_path / "saved")
    assert Trajectories.open(tmp_path / "saved", verify=True).lengths.tolist() == [2, 4]
    windows = Windows(found, 2, 1, 1)
    runs, frames = windows.locate()
    assert runs.tolist() == [1, 1]  # the first run has no third frame
    assert frames.tolist() == [[0, 1, 2], [1, 2, 3]]


@pytest.mark.parametrize(
    ("asf", "amc", "sentence"),
    [
        ("hello", AMC, r"07.asf: is no ASF skeleton"),
        (ASF.replace("direction 0 -1 0", "direction"), AMC, r"07.asf: is no ASF skeleton"),
        (ASF.replace("    thigh shin\n", ""), AMC, "shin does not hang on the root"),
        (ASF.replace("angle deg", "angle dag"), AMC, "expected angles in deg or rad: dag"),
        (ASF.replace("dof rx\n", "dof qx\n"), AMC, "no degree of freedom qx: shin"),
        (ASF.replace("20 XYZ", "20 ZYX"), AMC, "only angles in the order x, y, z are read: thigh"),
        (ASF.replace("dof rx ry rz", "dof rz ry rx"), AMC, "only angles in the order x, y, z"),
        (ASF.replace("position 0 0 0", "position 5 5 5"), AMC, "only a root at the origin is read"),
        (ASF.replace("axis XYZ\n", "axis ZYX\n"), AMC, "in the order x, y, z are read: root"),
        (ASF, AMC.replace(":DEGREES", ":RADIANS"), "only angles in degrees are read"),
        (ASF, "hello", r"07_01.amc: is no AMC motion"),
        (ASF, AMC.replace("shin 40", "shin x"), r"07_01.amc: is no AMC motion \(could not"),
        (ASF, AMC.replace("shin 40\n", ""), r"07_01.amc: is no AMC motion, or cut off"),
        (ASF, AMC.replace("shin 0", "shin 0 1").replace("shin 40", "shin 0 1"), "does not fit its"),
        (ASF, AMC.replace("shin", "toe"), r"07_01.amc: does not fit its skeleton \('shin'\)"),
        (None, AMC, r"no skeleton for the trial 07_01; expected one 07.asf"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_name(tmp_path, asf, amc, sentence):
    if asf is not None:
        (tmp_path / "07.asf").write_text(asf)
    (tmp_path / "07_01.amc").write_text(amc)
    with pytest.raises(InputError, match=sentence):
        read(tmp_path)


def test_archives_of_something_else_are_refused(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(b"hello")
    with pytest.raises(InputError, match="expected a folder or a tar file"):
        read(tmp_path / "a.tar.gz")
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        info = tarfile.TarInfo("x.txt")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"hi"))
    with pytest.raises(InputError, match=r"b.tar: holds no .amc file"):
        read(tmp_path / "b.tar")


@needs_cmu
@pytest.mark.parametrize("motion", ["walk", "run", "basketball"])
def test_the_raw_files_give_the_arrays_of_the_benchmarks(motion):
    arrays = CMU / f"motion_{motion}.npz"
    if not arrays.is_file():
        pytest.skip(f"{arrays.name}: the arrays of the benchmarks are not beside the raw files")
    given = np.load(arrays, allow_pickle=False)
    files = MotionFiles(find_motions(CMU))
    for number, trial in enumerate(given["trials"].tolist()):
        name, _, cut = trial.partition("[")  # such as 09_10[6:]
        x = files.positions(name)[int(cut.rstrip(":]") or 0) :]
        assert np.abs(x - given[f"X{number:02d}"]).max() < 1e-9
    assert files.skeleton(name).joints == given["joint_names"].tolist()
    assert np.array_equal(files.skeleton(name).edges, given["edges"])


@needs_cmu
@pytest.mark.parametrize(
    ("name", "settings", "counts", "last", "straight"),
    [
        ("mocap-walk", {}, [1100, 600, 600], 0.3831, 0.0184),
        ("mocap-basketball", {}, [1200, 600, 600], 1.5878, 0.1776),
        ("mocap-run", {}, [400, 240, 240], None, 19.80),
        ("mocap-walk", {"protocol": "one-frame"}, [1100, 600, 600], None, None),
    ],
)
def test_tasks_have_the_published_windows(name, settings, counts, last, straight):
    """The published errors of the last frame and the straight line, to every digit."""
    task = load_task(name, **settings)
    assert [len(windows) for windows in task.splits.values()] == counts
    for model, published in ((LastFrame(), last), (StraightLine(), straight)):
        if published is not None:
            found, _ = measure_errors(model, task.test, 100)
            assert float(found.position.mean()) == pytest.approx(published, rel=1e-3)
    graph, _ = task.train[:2]
    assert graph.x.shape[2:] == (31, 3)
    assert graph.features.shape[-1] == 32  # the speed, and which joint it is
    assert graph.edge_attr[0, 0, ..., 0].sum() == 60  # thirty bones, seen from both ends


@needs_cmu
def test_a_protocol_that_reaches_beyond_the_trials_is_refused():
    with pytest.raises(InputError, match="reach beyond their trials"):
        load_task("mocap-run", protocol="ten-frames")


def test_without_the_data_a_task_says_what_it_needs(monkeypatch, tmp_path):
    monkeypatch.delenv("SPACETIME_EN_CMU", raising=False)
    with pytest.raises(InputError, match="set SPACETIME_EN_CMU to a folder with the ASF/AMC"):
        load_task("mocap-walk", cache=tmp_path)


def test_windows_can_be_named_one_by_one(tmp_path):
    runs = [
        np.random.default_rng(k).standard_normal((length, 2, 3)) for k, length in ((0, 9), (1, 6))
    ]
    data = Trajectories.from_runs(runs)
    windows = Windows(data, 2, 2, 1, starts=np.array([(1, 2), (0, 5), (0, 0)]))
    assert windows.locate()[0].tolist() == [1, 0, 0]
    assert windows.locate()[1].tolist() == [[2, 4, 5], [5, 7, 8], [0, 2, 3]]
    assert np.allclose(windows[0][0].x[0, 1], runs[1][4], atol=1e-6)
    with pytest.raises(InputError, match="no window starts at step 20 of run 0"):
        Windows(data, 2, 2, 1, starts=np.array([(0, 20)]))
    with pytest.raises(InputError, match="step 3 of run 1 does not end in it; the run has 6"):
        Windows(data, 2, 2, 1, starts=np.array([(1, 3)]))


def test_runs_that_do_not_fit_each_other_are_refused():
    with pytest.raises(InputError, match=r"runs: expected \(T, N, n\) with the same N, n"):
        Trajectories.from_runs([np.zeros((5, 2, 3)), np.zeros((5, 3, 3))])
