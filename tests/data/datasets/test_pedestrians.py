"""Pedestrians: the protocol as a plain loop, with invented and, if present, measured people."""

import math

import numpy as np
import pytest

from spacetime_en import InputError, StraightLine, evaluate
from spacetime_en.data import Windows, load_task
from spacetime_en.data.datasets.pedestrians import TESTED, find_scenes
from spacetime_en.evaluation import measure_errors
from tests.data.eth_ucy import EARLY, ETH_UCY, invent_scenes, needs_eth_ucy


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    return folder, invent_scenes(folder)


@pytest.fixture
def invented(scenes, monkeypatch):
    folder, tables = scenes
    monkeypatch.setenv("SPACETIME_EN_ETH_UCY", str(folder))
    return tables


def protocol(table, min_people):
    """The windows of a recording, people in all twenty frames each, as their paths (20, 2)."""
    there = {}
    for frame, person, x, y in table.tolist():
        there.setdefault(int(frame), {})[int(person)] = (x, y)
    found = []
    for start in sorted(there):
        frames = [there.get(start + 10 * k, {}) for k in range(20)]
        people = set.intersection(*(set(frame) for frame in frames))
        if len(people) >= min_people:
            found.append([[frame[person] for frame in frames] for person in sorted(people)])
    return found


def constant_velocity(windows):
    """ADE and FDE of extrapolating the last difference."""
    distances = []
    for path in (path for window in windows for path in window):
        (x0, y0), (x1, y1) = path[6:8]
        distances.append(
            [math.dist((x1 + k * (x1 - x0), y1 + k * (y1 - y0)), path[7 + k]) for k in range(1, 13)]
        )
    distances = np.array(distances)
    return distances.mean(), distances[:, -1].mean()


@pytest.mark.parametrize("scene", TESTED)
@pytest.mark.parametrize("min_people", [1, 2])
def test_windows_people_and_errors_are_those_of_a_plain_loop(invented, scene, min_people):
    task = load_task(scene, min_people=min_people)
    windows = [w for name in TESTED[scene] for w in protocol(invented[name], min_people)]
    report = evaluate(StraightLine(), task).report
    assert report["windows"] == len(windows) > 5
    assert report["paths"]["nodes"] == sum(map(len, windows))
    assert (report["ade"], report["fde"]) == pytest.approx(constant_velocity(windows), rel=1e-4)
    graph, target = task.test[0]
    assert graph.x.shape[1:] == (8, len(windows[0]), 2)
    assert target.x.shape[1:] == (12, len(windows[0]), 2)
    assert np.allclose(graph.times[0].diff(), 0.4)
    assert np.allclose(graph.horizon[0], 0.4 * np.arange(1, 13))


def test_all_other_scenes_are_trained_on_early_and_selected_on_late(invented):
    task = load_task("univ")
    names = task.train.trajectories.meta["recordings"]
    used = {split: [names[run] for run in w.runs] for split, w in task.splits.items()}
    others = ["biwi_eth", "biwi_hotel", "crowds_zara01", "crowds_zara02", "crowds_zara03"]
    assert used["train"] == used["val"] == [*others, "uni_examples"]
    assert used["test"] == ["students001", "students003"]
    early = {name: table[table[:, 0] < EARLY] for name, table in invented.items()}
    late = {name: table[table[:, 0] >= EARLY] for name, table in invented.items()}
    for split, tables in (("train", early), ("val", late)):
        count = sum(len(protocol(tables[name], 2)) for name in used[split])
        assert len(task.splits[split]) == count > 0


def test_people_pass_through_in_few_places(invented):
    task = load_task("zara1")
    assert task.test.trajectories.x.shape[2] < 20  # of twenty people


def test_what_is_not_there_or_not_as_expected(monkeypatch, tmp_path):
    monkeypatch.delenv("SPACETIME_EN_ETH_UCY", raising=False)
    with pytest.raises(InputError, match="the data are not here; set SPACETIME_EN_ETH_UCY"):
        load_task("eth", cache=tmp_path)
    invent_scenes(tmp_path / "eth_ucy")
    assert find_scenes(tmp_path / "eth_ucy") == tmp_path / "eth_ucy"
    assert len(load_task("eth", cache=tmp_path).test) > 0
    monkeypatch.setenv("SPACETIME_EN_ETH_UCY", str(tmp_path))
    with pytest.raises(InputError, match="expected the folders all_data, train and val in"):
        load_task("eth", cache=tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("hello", "cannot be read"),
        ("", "expected four numbers a line"),
        ("0 1 2\n", "expected four numbers a line"),
        ("0 1 2 nan\n", "expected four numbers a line"),
        ("5 1 2 3\n", "multiples of 10"),
        ("10 1 2 3\n10 1 2 4\n", "a person is there twice in the same frame"),
    ],
)
def test_damaged_recordings(monkeypatch, tmp_path, text, sentence):
    invent_scenes(tmp_path)
    monkeypatch.setenv("SPACETIME_EN_ETH_UCY", str(tmp_path))
    (tmp_path / "all_data" / "biwi_eth.txt").write_text(text)
    with pytest.raises(InputError, match=rf"biwi_eth\.txt: .*{sentence}"):
        load_task("eth")
    (tmp_path / "all_data" / "biwi_eth.txt").unlink()
    with pytest.raises(InputError, match=r"biwi_eth\.txt: cannot be read"):
        load_task("eth")


@needs_eth_ucy
@pytest.mark.parametrize(
    ("scene", "windows", "people", "alone", "ade", "fde"),
    [
        ("eth", 70, 181, 364, 0.995, 2.234),
        ("hotel", 301, 1_053, 1_197, 0.323, 0.617),
        ("univ", 947, 24_334, 24_334, 0.524, 1.165),
        ("zara1", 602, 2_253, 2_356, 0.431, 0.960),
        ("zara2", 921, 5_833, 5_910, 0.326, 0.728),
    ],
)
def test_the_benchmark_has_the_known_windows_people_and_errors(
    monkeypatch, scene, windows, people, alone, ade, fde
):
    monkeypatch.setenv("SPACETIME_EN_ETH_UCY", str(ETH_UCY))
    test = load_task(scene).test
    assert (len(test), int(test.node_counts.sum())) == (windows, people)
    errors, _ = measure_errors(StraightLine(), test, 100)
    assert (round(errors.paths.ade, 3), round(errors.paths.fde, 3)) == (ade, fde)
    data, runs = test.trajectories, test.runs
    anybody = Windows(data, 8, 1, "1..12", runs=runs, nodes="all", min_nodes=1)
    assert int(anybody.node_counts.sum()) == alone
