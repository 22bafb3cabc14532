"""The path of a user: data, train, evaluate, predict, export, search; and errors on bad input."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from spacetime_en import Forecaster
from spacetime_en.cli import main
from spacetime_en.data.readers import read
from spacetime_en.evaluation import RIVALS
from spacetime_en.runs.run import Run
from tests.integration.commands import TASK

SIZE = ["--model.hidden", "8", "--model.layers", "1", "--model.blocks", "2"]


@pytest.fixture
def spacetime(monkeypatch, capsys, cache, tiny_task, tmp_path):
    """Runs a command; returns its output."""
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["spacetime", *arguments])
        main()
        return capsys.readouterr().out

    return run


def error_of(spacetime, *arguments):
    with pytest.raises(SystemExit) as stop:
        spacetime(*arguments)
    return str(stop.value)


def test_paths_of_nodes_that_come_and_go(spacetime, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 14, 4, 2)).cumsum(1)
    x[rng.random(x.shape[:3]) < 0.1] = np.nan
    np.savez("tracks.npz", x=x)
    spacetime("data", "import", "tracks.npz", "--out", "tracks")
    path = ("--task.length", "4", "--task.target-steps", "1..3")
    spacetime("train", "ridge-shared", "--data", "tracks", *path, "--out", "run")
    report = json.loads(spacetime("evaluate", "run", "--json", "--plot", "error.png"))
    assert [row["step"] for row in report["error_against_time"]] == [1, 2, 3]
    assert 0 < report["ade"] < report["fde"]
    for rival in RIVALS:
        assert report[rival]["fde"] > 0
    assert (tmp_path / "error.png").read_bytes().startswith(b"\x89PNG")
    assert "error.png: exists" in error_of(spacetime, "evaluate", "run", "--plot", "error.png")
    assert "ADE" in spacetime("evaluate", "run")


def test_train_evaluate_predict_export(spacetime, tmp_path, cache):
    said = spacetime("train", "set", *TASK, *SIZE, "--steps", "4", "--lr", "1e-2", "--out", "run")
    assert "best at step 4" in said
    assert "spacetime evaluate run" in said

    report = json.loads(spacetime("evaluate", "run", "--json"))
    for row in (report, report["last_frame"], report["straight_line"]):
        for what in ("position_mse", "velocity_mse"):
            assert set(row[what]) == {"mean", "standard_error", "median", "p90"}
    assert report["windows"] == 12
    assert report["horizon_times"] == [pytest.approx(0.1)]
    assert max(report["equivariance_error"].values()) < 1e-4
    shown = spacetime("evaluate", "run", "--split", "val", "--task.noise", "0.5")
    assert "straight line" in shown
    assert "energy" in shown
    assert len(list((tmp_path / "run" / "evaluation").iterdir())) == 4

    (data,) = cache.glob("charged-N5-L3x10-H100-64-*")
    spacetime("predict", "run", str(data), "--out", "forecasts.npz", "--last")
    forecasts = read("forecasts.npz")
    assert forecasts.x.shape == (64, 1, 5, 3)
    model = Forecaster.from_pretrained(tmp_path / "run" / "model")
    from spacetime_en.runs.config import open_task
    from spacetime_en.runs.run import Run

    test = open_task(Run.open("run").config.task).test
    with torch.no_grad():
        expected = model(test[:][0]).x.numpy()  # (12, 1, 5, 3)
    np.testing.assert_allclose(forecasts.x[52:], expected, atol=1e-5)
    assert forecasts.times[0] == pytest.approx(0.12)  # the last frame's 0.02, and the horizon

    assert "model.pt2" in spacetime("export", "run", "--format", "torch-export")
    exported = torch.export.load("run/model.pt2").module()
    graph, _ = test[:3]
    out = exported(**graph.fields())
    np.testing.assert_allclose(out["forecast_x"].numpy(), expected[:3], atol=1e-5)


def test_your_own_data_and_your_own_model(spacetime, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "from spacetime_en import Forecast, Forecaster, Symmetries\n"
        "class Drift(Forecaster):\n"
        '    """x + a v."""\n'
        "    def __init__(self, start: float = 1.0) -> None:\n"
        "        super().__init__()\n"
        "        self.a = torch.nn.Parameter(torch.tensor(start))\n"
        "    @property\n"
        "    def symmetries(self):\n"
        "        return Symmetries(True, True, True)\n"
        "    def forecast(self, graph):\n"
        "        x, v = graph.x[:, -1:], graph.v[:, -1:]\n"
        "        return Forecast(x + self.a * v, v)\n"
    )
    walk = np.random.default_rng(0).standard_normal((1, 200, 3, 2)).cumsum(1)
    np.savez("walk.npz", x=walk.cumsum(1), times=0.5 * np.arange(200))
    spacetime("data", "import", "walk.npz", "--out", "data")
    spacetime(
        *("train", "mine.Drift", "--data", "data", "--task.length", "4", "--model.start", "0.1"),
        *("--epochs", "2", "--lr", "0.1", "--out", "run"),
    )
    report = json.loads(spacetime("evaluate", "run", "--json"))
    assert report["position_mse"]["mean"] < report["last_frame"]["mean"]
    assert set(report["drift"]["truth"]) == {"momentum", "angular_momentum"}
    assert report["drift"]["found"] == {}
    spacetime("predict", "run", "walk.npz", "--out", "next.npz")
    assert read("next.npz").x.shape == (1, 197, 3, 2)


def test_a_sparse_graph_from_training_to_forecast(spacetime, tmp_path):
    """Neighbours are chosen by the rule of the task, also for new data."""
    walk = np.random.default_rng(0).standard_normal((12, 9, 6, 3)).cumsum(1)
    np.savez("walk.npz", x=walk, times=0.5 * np.arange(9))
    spacetime("data", "import", "walk.npz", "--out", "data")
    spacetime(
        *("train", "egnn", "--data", "data", "--task.k", "2", "--task.length", "3"),
        *("--model.hidden", "8", "--steps", "3", "--out", "run"),
    )
    run = Run.open("run")
    graph, _ = run.config.load_task().test[:]
    assert graph.neighbours.shape[-1] == 2
    spacetime("predict", "run", "data", "--out", "next.npz")
    found = read("next.npz").x[-2:, 0]  # the first window of the last two runs, the test's
    with torch.no_grad():
        forecast = run.model()(graph)
    np.testing.assert_allclose(found, forecast.x[:: len(graph) // 2, 0], rtol=1e-4, atol=1e-5)


def test_a_config_file_and_options_that_replace_it(spacetime, tmp_path):
    counts = ", ".join(TASK[TASK.index("--task.counts") + 1 :][:3])
    (tmp_path / "c.yaml").write_text(
        "preset: egnn\nmodel: {hidden: 4}\n"
        f"task: {{name: charged, counts: [{counts}], target_steps: 10, length: 3}}\n"
        "training: {steps: 3, lr: 1e-3}\n"
    )
    spacetime("train", "--config", "c.yaml", "--lr", "2e-3", "--model.layers", "1", "--out", "run")
    text = (tmp_path / "run" / "config.yaml").read_text()
    for line in ("hidden: 4", "layers: 1", "lr: 0.002", "steps: 3", "batch_size: 32"):
        assert line in text
    assert "goes on" not in spacetime("train", "--out", "run", "--resume", "--steps", "5")
    best = spacetime("train", "--config", "run/config.yaml", "--out", "again", "--steps", "1")
    assert "again: best at step 1" in best


def test_search_then_train(spacetime, tmp_path):
    said = spacetime("search", "linear", *TASK, "--steps", "5", "--trials", "2", "--out", "study")
    assert "preset: linear" in said
    assert "spacetime train --config study/best.yaml" in said
    spacetime("train", "--config", "study/best.yaml", "--out", "run")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "sett", *TASK, "--out", "x"), "preset: there is no 'sett'; did you mean 'set'?"),
        (("train", "set", "--task", "charge", "--out", "x"), "task: there is no 'charge'; did you"),
        (("train", "set", "--out", "x"), "task: what to train on?"),
        (("train", *TASK, "--out", "x"), "preset: which model?"),
        (("train", "set", "--data", "nowhere", "--out", "x"), "expected a data set's folder"),
        (
            ("train", "set", "--config", "no.yaml", "--out", "x"),
            "no.yaml: No such file",
        ),
        (("train", "set", *TASK, "--out", "x", "--lr", "-1"), "lr: expected a positive number"),
        (("train", "set", *TASK, "--out", "x", "--max-time", "soon"), "max_time: expected a time"),
        (("train", "straight-line", *TASK, "--out", "x"), "StraightLine has nothing to train"),
        (("train", "set", *TASK, "--data", "d", "--out", "x"), "either a task or data"),
        (("train", "mlp", *TASK, "--model.dims", "2", "--out", "x"), "tied to n = 2 space dim"),
        (
            ("train", "set", *TASK, "--out", "x", "--model.dropout", "2"),
            "dropout: expected a number from 0",
        ),
        (("train", "mlp", *TASK, "--out", "x", "--num-nodes", "2"), "num_nodes: 2 machines need a"),
        (("train", "--config", "bad.yaml", "--out", "x"), "bad.yaml: preset: expected text"),
        (
            ("train", "broken.Model", *TASK, "--out", "x"),
            "broken.Model: cannot be imported (Syntax",
        ),
        (("train", "mlp", "--data", "broken.py", "--out", "x"), "is a file; make a data set of it"),
        (
            ("train", "mlp", "--task", "charged", "--task.target_steps", "-5", "--out", "x"),
            "target_steps: exp",
        ),
        (("evaluate", "emptied"), "run.json: the entry data is missing"),
        (("animate", "nowhere", "--out", "a.gif"), "nowhere: is no run"),
        (("evaluate", "nowhere"), "nowhere: is no run"),
        (("predict", "nowhere", "x.npz", "--out", "y.npz"), "nowhere: is no run"),
        (("export", "nowhere"), "nowhere: is no run"),
    ],
)
def test_bad_input_is_one_sentence(spacetime, tmp_path, arguments, message):
    (tmp_path / "bad.yaml").write_text("preset: 3\ntask: charged\n")
    (tmp_path / "broken.py").write_text("class Model(:\n")
    (tmp_path / "emptied").mkdir()
    (tmp_path / "emptied" / "run.json").write_text("{}")
    (tmp_path / "emptied" / "config.yaml").write_text("preset: mlp\ntask: charged\n")
    said = error_of(spacetime, *arguments)
    assert said.startswith("error: ")
    assert message in said
    assert "\n" not in said


def test_unknown_options_get_the_nearest(spacetime, capsys):
    with pytest.raises(SystemExit):
        spacetime("train", "set", *TASK, "--out", "x", "--model.hiden", "8")
    said = capsys.readouterr().err
    assert "--model.hiden" in said
    assert "--model.hidden" in said


def test_data_that_do_not_fit_the_model(spacetime, tmp_path):
    spacetime("train", "lstm", *TASK, "--steps", "1", "--out", "run")
    said = error_of(spacetime, "evaluate", "run", "--task.nodes", "4")
    assert "this model is tied to N = 5 nodes, the graph has 4" in said
    x = np.random.default_rng(0).standard_normal((2, 6, 5, 2))
    np.savez("flat.npz", x=x, times=0.01 * np.arange(6))
    assert "error: " in error_of(spacetime, "predict", "run", "flat.npz", "--out", "y.npz")
    np.savez("slow.npz", x=np.zeros((2, 6, 5, 3)) + np.arange(6)[:, None, None])
    said = error_of(spacetime, "predict", "run", "slow.npz", "--out", "y.npz")
    assert "0.01" in said
    assert not (tmp_path / "y.npz").exists()


def test_another_horizon_than_the_trained_one_is_told(spacetime, capsys):
    spacetime("train", "linear", *TASK, "--steps", "1", "--out", "run")
    spacetime("evaluate", "run")
    report = json.loads(spacetime("evaluate", "run", "--task.target_steps", "9", "--json"))
    assert "trained for a horizon of 0.1" in report["warnings"][0]


def test_other_data_are_cut_as_the_model_knows_them(spacetime):
    x = np.random.default_rng(0).standard_normal((12, 30, 3, 3)).cumsum(1)
    np.savez("a.npz", x=x)
    np.savez("b.npz", x=x[:, :29])
    np.savez("flat.npz", x=x[..., :2])
    for name in ("a", "b", "flat"):
        spacetime("data", "import", f"{name}.npz", "--out", name)
    windows = ("--task.length", "4", "--task.target_steps", "3")
    spacetime("train", "ridge-shared", "--data", "a", *windows, "--out", "run")
    report = json.loads(spacetime("evaluate", "run", "--data", "b", "--json"))
    assert report["windows"] == 2 * (29 - 3 - 3)
    said = error_of(spacetime, "evaluate", "run", "--data", "flat")
    assert "x: the model was trained in 3 dimensions, and the data have 2" in said
    short = ("evaluate", "run", "--data", "b", "--task.length", "5")
    assert "tied to 4 frames" in error_of(spacetime, *short)
    spacetime("train", "ridge-shared", "--data", "a", "--out", "suggested")  # ten frames
    np.savez("short.npz", x=x[:, :14])
    spacetime("data", "import", "short.npz", "--out", "short")
    report = json.loads(spacetime("evaluate", "suggested", "--data", "short", "--json"))
    assert report["windows"] == 2 * (14 - 10)
    spacetime("train", "linear", *TASK, "--steps", "1", "--out", "simulated")
    np.savez("charged.npz", x=x, v=x, charge=np.ones((12, 3)))
    spacetime("data", "import", "charged.npz", "--out", "charged")
    report = json.loads(spacetime("evaluate", "simulated", "--data", "charged", "--json"))
    assert report["windows"] == 2 * (30 - 3)  # three frames, as in training


def test_data_replaced_under_a_run_are_refused(spacetime):
    for seed, name in ((0, "a"), (1, "b")):
        x = np.random.default_rng(seed).standard_normal((12, 30, 3, 3)).cumsum(1)
        np.savez(f"{name}.npz", x=x)
        spacetime("data", "import", f"{name}.npz", "--out", name)
    spacetime("train", "ridge-shared", "--data", "a", "--out", "run")
    spacetime("evaluate", "run", "--json")
    Path("a").rename("c")
    Path("b").rename("a")
    wanted = "a: holds other data than run was trained on; put those back"
    for words in ((), ("--data", "./a"), ("--task.target_steps", "2")):
        assert wanted in error_of(spacetime, "evaluate", "run", *words)
    assert wanted in error_of(spacetime, "animate", "run", "--out", "film.html")
    Path("a").rename("b")
    (said,) = json.loads(spacetime("evaluate", "run", "--data", "b", "--json"))["warnings"]
    assert said.startswith("whether the model was trained on these windows is not known: ")
    Path("c").rename("a")
    assert json.loads(spacetime("evaluate", "run", "--data", "b", "--json"))["warnings"] == []


def test_a_report_that_cannot_be_written_is_still_shown(spacetime, capsys):
    spacetime("train", "linear", *TASK, "--steps", "1", "--out", "run")
    capsys.readouterr()
    Path("run/evaluation").write_text("in the way")
    assert json.loads(spacetime("evaluate", "run", "--json"))["windows"] == 12
    assert "straight line" in spacetime("evaluate", "run")


def test_no_space_is_one_sentence(spacetime, monkeypatch):
    import spacetime_en.runs.run as runs

    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs, "write_text_atomically", full)
    said = error_of(spacetime, "train", "linear", *TASK, "--steps", "1", "--out", "run")
    assert said == "error: --out run: No space left on device."


def test_the_demo(spacetime, monkeypatch, tmp_path):
    import spacetime_en.report.demo as demo

    monkeypatch.setattr(
        demo, "TASK", {"name": "charged", "counts": (40, 12, 12), "target_steps": 10}
    )
    reports = demo.run_demo(tmp_path / "demo", 0, steps=2)
    assert set(reports) == {"set-2", "set", "egnn", "mlp"}
    for name in ("forecasts.png", "equivariance.png"):
        assert (tmp_path / "demo" / name).read_bytes().startswith(b"\x89PNG")
    demo.run_demo(tmp_path / "demo", 0, steps=2)  # a second time does not train again


def test_the_run_may_stand_anywhere_among_the_options(spacetime):
    spacetime("train", "linear", *TASK, "--steps", "1", "--out", "run")
    reports = [
        json.loads(spacetime("evaluate", *words, "--json"))
        for words in (("run", "--task", "charged"), ("--task", "charged", "run"))
    ]
    assert reports[0] == reports[1]
    assert reports[0]["windows"] == 12  # the run's own settings of that task


def test_windows_that_were_trained_on_are_told(spacetime):
    spacetime("train", "linear", *TASK, "--steps", "1", "--out", "run")
    assert json.loads(spacetime("evaluate", "run", "--json"))["warnings"] == []
    again = ("evaluate", "run", "--task.counts", "10", "10", "12", "--json")
    assert json.loads(spacetime(*again))["warnings"] == ["12 of these 12 windows were trained on."]
    fresh = ("evaluate", "run", "--task.seed", "7", "--json")
    assert json.loads(spacetime(*fresh))["warnings"] == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed"])
def test_half_precision_needs_a_gpu(spacetime, precision):
    said = error_of(spacetime, "train", "mlp", *TASK, "--out", "x", "--precision", precision)
    assert f"precision: {precision} needs a GPU" in said


def test_a_run_can_be_animated_beside_another(spacetime, tmp_path):
    spacetime("train", "mlp", *TASK, "--steps", "2", "--out", "one")
    spacetime("train", "ridge-shared", *TASK, "--out", "two")
    assert spacetime("animate", "one", "two", "--out", "film.html") == "film.html\n"
    assert spacetime("animate", "one", "two", "--out", "still.svg") == "still.svg\n"
    assert (tmp_path / "still.svg").read_bytes().startswith(b"<?xml")
    text = (tmp_path / "film.html").read_text()
    assert '"mlp"' in text
    assert '"ridge-shared"' in text
    spacetime("train", "mlp", *TASK, "--task.seed", "1", "--steps", "2", "--out", "other")
    said = error_of(spacetime, "animate", "one", "other", "--out", "film.gif")
    assert "other: was trained on another task than one" in said
