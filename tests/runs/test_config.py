import dataclasses
import re
import sys

import numpy as np
import pytest

from spacetime_en import SET, EGNNForecaster, Forecaster, InputError, build_model
from spacetime_en.data import TASKS, Trajectories
from spacetime_en.geometry import FULL_SYMMETRY
from spacetime_en.nn.presets import PRESETS
from spacetime_en.runs.config import FROM_DATA, Config, model_schema, task_schema
from spacetime_en.training import PAPER, TrainingSettings
from spacetime_en.training.settings import preset_defaults


class Own(Forecaster):
    """A user's model."""

    def __init__(self, nodes: int, width: int = 4) -> None:
        super().__init__()

    @property
    def symmetries(self):
        return FULL_SYMMETRY


@pytest.fixture(autouse=True)
def cached(monkeypatch, cache):
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))


def config(text):
    return Config.from_yaml(text, "here.yaml")


@pytest.mark.parametrize("preset", PRESETS)
def test_settings_of_models_are_those_of_their_signatures(preset):
    fields = {f.name: f for f in dataclasses.fields(model_schema(preset))}
    tied = {"nodes": 3} if preset in ("lstm", "ridge", "body", "kernel") else {}
    assert set(fields) == set(PRESETS[preset].model(**tied).config)
    for name, value in PRESETS[preset].settings.items():
        assert fields[name].default == value
    assert all(fields[name].default is None for name in fields if name in FROM_DATA)


@pytest.mark.parametrize(("text", "value"), [("false", False), ("true", True), ("tfn", "tfn")])
def test_the_spatial_part_of_set_is_on_off_or_a_name(text, value):
    given = config(f"{{preset: set, task: charged, model: {{spatial: {text}}}}}").model["spatial"]
    assert (given, type(given)) == (value, type(value))


@pytest.mark.parametrize("task", [{"name": name} for name in TASKS] + [{"data": "folder"}])
def test_settings_of_tasks_are_those_of_their_signatures(task):
    settings = {f.name: f.default for f in dataclasses.fields(task_schema(task))}
    if "name" in task:
        assert settings == TASKS[task["name"]].settings
    else:
        assert {"length", "stride", "target_steps", "counts", "noise", "noise_seed"} <= set(
            settings
        )


def test_from_yaml_and_back():
    text = """
    preset: set
    model: {hidden: 8, adjacency: edges}
    task: {name: charged, counts: [8, 2, 2], frame_interval: 1e1, target_steps: 1..3}
    training: {lr: 1e-3, epochs: 2, clip: null}
    """
    one = config(text)
    assert one.task == {
        "name": "charged",
        "counts": (8, 2, 2),
        "frame_interval": 10,
        "target_steps": "1..3",
    }
    assert one.training == TrainingSettings(
        **(PAPER["set"] | {"lr": 1e-3, "epochs": 2, "clip": None})
    )
    assert config(one.to_yaml()) == one
    assert config("{preset: set, task: charged}").training.lr == 4.45e-5


def test_on_other_tasks_than_the_papers_there_is_no_dropout_and_a_larger_rate(tiny_task):
    for task, lr, dropout in (("charged", 4.45e-5, 0.1), ("gravity", 1e-3, 0.0)):
        one = config(f"{{preset: set, task: {task}}}")
        assert one.training == TrainingSettings(**preset_defaults("set", task).training)
        assert (one.training.lr, one.build_model(tiny_task).config["dropout"]) == (lr, dropout)
        text = f"{{preset: set, task: {task}, model: {{dropout: 0.3}}, training: {{lr: 0.3}}}}"
        one = config(text)
        assert (one.training.lr, one.build_model(tiny_task).config["dropout"]) == (0.3, 0.3)
        written = config(one.resolved(one.build_model(tiny_task)).to_yaml())
        assert written.model["dropout"] == 0.3


def test_a_resolved_config_holds_every_setting(tiny_task):
    one = config("{preset: set, task: {name: charged, counts: [40, 12, 12]}, model: {hidden: 8}}")
    model = one.build_model(tiny_task)
    resolved = one.resolved(model)
    assert isinstance(model, SET)
    assert resolved.model == model.config
    assert set(resolved.task) == {"name", *TASKS["charged"].settings}
    assert config(resolved.to_yaml()) == resolved
    assert build_model("set", **resolved.model).config == model.config


def test_sizes_and_units_come_from_the_data(tmp_path, tiny_task):
    t = tiny_task.train.trajectories
    path = tmp_path / "mm"
    Trajectories.from_arrays(
        1000 * t.x[:, :, :, :2],
        1000 * t.v[:, :, :, :2],
        times=t.times,
        steps=t.steps,
        attributes={"mass": t.charge[:] ** 2},
    ).save(path)
    text = f"{{preset: set-nonequivariant, task: {{data: {path}}}}}"
    one = Config.from_yaml(text, "here.yaml", trust=True)
    settings = one.build_model(one.load_task()).config
    assert (settings["features"], settings["edge_features"], settings["dims"]) == (2, 0, 2)
    assert 500 < settings["length_scale"] < 2000
    given = dataclasses.replace(one, model={"length_scale": 3.0})
    assert given.build_model(one.load_task()).config["length_scale"] == 3.0
    named = config("{preset: egnn, task: charged}")
    assert named.build_model(tiny_task).config["length_scale"] == 1.0


def test_the_number_of_target_times_comes_from_the_data(tmp_path):
    x = np.random.default_rng(0).standard_normal((12, 9, 2, 2)).cumsum(1)
    Trajectories.from_arrays(x).save(tmp_path / "paths")
    task = f"{{data: {tmp_path / 'paths'}, length: 3, target_steps: 1..4}}"
    one = Config.from_yaml(f"{{preset: ridge-shared, task: {task}}}", "here.yaml", trust=True)
    assert one.build_model(one.load_task()).config["targets"] == 4


class Inherited(EGNNForecaster):
    """Nothing of its own."""


class Bare(Forecaster):
    """A user who writes no types."""

    def __init__(self, features=1, nodes=3, flag=False, hidden=16):
        super().__init__()

    @property
    def symmetries(self):
        return FULL_SYMMETRY


def test_classes_that_inherit_or_have_no_types(tiny_task):
    one = config(f"{{preset: {__name__}.Inherited, task: charged, model: {{hidden: 4}}}}")
    model = one.build_model(tiny_task)
    assert (model.config["hidden"], model.config["edge_features"]) == (4, 1)
    assert config(one.resolved(model).to_yaml()).model["hidden"] == 4
    bare = config(f"{{preset: {__name__}.Bare, task: charged, model: {{hidden: 32}}}}")
    model = bare.build_model(tiny_task)
    assert model.config == {"features": 1, "nodes": 5, "flag": False, "hidden": 32}
    assert config(bare.resolved(model).to_yaml()).model == model.config


def test_a_class_of_ones_own_by_its_import_path(tiny_task):
    one = config(f"{{preset: {__name__}.Own, task: charged, model: {{width: 5}}}}")
    model = one.build_model(tiny_task)
    assert model.config == {"nodes": 5, "width": 5}
    with pytest.raises(InputError, match="cannot be imported"):
        Config.from_yaml("{preset: no.such.Model, task: charged}", "here", trust=True)
    with pytest.raises(InputError, match="expected a subclass of spacetime_en"):
        config("{preset: pathlib.Path, task: charged}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{preset: sett, task: charged}", "preset: there is no 'sett'; did you mean 'set'?"),
        ("{preset: set, task: charge}", "task: there is no 'charge'; did you mean 'charged'?"),
        ("{preset: set, tasks: charged}", "here.yaml: setting: there is no 'tasks'; .*'task'"),
        (
            "{preset: set, task: charged, model: {hiden: 3}}",
            "here.yaml: setting: there is no 'model.hiden'; did you mean 'model.hidden'?",
        ),
        (
            "{preset: set, task: charged, training: {learning_rate: 3}}",
            "here.yaml: setting: there is no 'training.learning_rate'",
        ),
        (
            "{preset: set, task: charged, training: {lr: fast}}",
            "here.yaml: training.lr: expected a positive number, found 'fast'",
        ),
        (
            "{preset: set, task: charged, model: {causal: maybe}}",
            "here.yaml: model.causal: expected true or false, found 'maybe'",
        ),
        ("{preset: set, model: 3}", "here.yaml: model: expected settings, found 3"),
        ("{preset: set}", "here.yaml: expected a preset and a task"),
        ("{preset: set, task: {name: charged, data: x}}", "here.yaml: task: give either name or"),
        ("[1, 2]", "here.yaml: expected entries"),
        ("{format: 2, preset: set, task: charged}", "here.yaml: its format is 2, this version"),
        ("{preset: [set], task: charged}", "here.yaml: preset: expected text or None, found .'set"),
        ("{preset: set, task: {name: 3}}", "here.yaml: task.name: expected text, found 3"),
        ("{preset: set, task: {data: [a]}}", "here.yaml: task.data: expected text, found .'a'"),
        ("{preset: set, task: {name: null}}", "here.yaml: expected a preset and a task"),
        ("{preset: set, task: charged, 3: 4}", "here.yaml: setting: there is no '3'"),
        ("{preset: set, task: {name: charged, 3: 4}}", "here.yaml: setting: there is no 'task.3'"),
        ("{preset: set, preset: mlp, task: charged}", "'preset' stands twice"),
        (
            "{preset: set, task: charged, model: {hidden: 0}}",
            "here.yaml: model.hidden: expected a positive whole number, found 0",
        ),
        (
            "{preset: set, task: charged, model: {hidden: 0xffffffffffffffffffffff}}",
            "here.yaml: model.hidden: expected a positive whole number, at most",
        ),
        (
            "{preset: set, task: charged, model: {hidden: 2026-01-01}}",
            "here.yaml: model.hidden: expected a positive whole number, found datetime.date",
        ),
        (
            "{preset: set, task: charged, model: {encodings: no}}",
            "here.yaml: model.encodings: expected text, found False",
        ),
        (
            "{preset: set, task: charged, training: {lr: .nan}}",
            "here.yaml: training.lr: expected a positive number, found nan",
        ),
        (
            "{preset: set, task: charged, training: {max_time: soon}}",
            "here.yaml: training.max_time: expected a time such as",
        ),
        (
            "{preset: set, task: {name: charged, counts: [1, 2]}}",
            "here.yaml: task.counts: expected a list of 3, found .1, 2.",
        ),
        ('{preset: set, task: {data: "a\\0b"}}', "here.yaml: task.data: .* cannot be a name"),
        ("{a: [", "here.yaml: is not valid YAML"),
    ],
)
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(InputError, match=message.replace("?", r"\?")) as error:
        config(text)
    assert "\n" not in str(error.value)


def test_a_file_imports_nothing_unless_it_is_trusted(tmp_path, monkeypatch):
    (tmp_path / "somebodys.py").write_text("raise SystemExit('run')")
    monkeypatch.chdir(tmp_path)
    message = r"here.yaml: 'somebodys.Model' is no part of this package.* add --trust if you trust"
    with pytest.raises(InputError, match=message):
        config("{preset: somebodys.Model, task: charged}")
    assert "somebodys" not in sys.modules


def test_trusted_classes_are_found_in_the_working_directory_and_only_while_imported(
    tmp_path, monkeypatch
):
    (tmp_path / "my_models.py").write_text(
        "from spacetime_en import LastFrame\nclass Mine(LastFrame):\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    text = "{preset: my_models.Mine, task: charged}"
    try:
        assert Config.from_yaml(text, "here", trust=True).preset == "my_models.Mine"
        assert sys.path == before
        assert config(text).preset == "my_models.Mine"  # what is imported runs nothing more
    finally:
        sys.modules.pop("my_models", None)


def test_data_that_only_a_file_names_are_not_read(tmp_path, tiny_task, monkeypatch):
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(tmp_path / "cache"))
    t = tiny_task.train.trajectories
    path = Trajectories.from_arrays(t.x[:], t.v[:], steps=t.steps).save(tmp_path / "secret")
    text = f"{{preset: set, task: {{data: {path}}}}}"
    with monkeypatch.context() as patch:
        patch.setattr(Trajectories, "open", classmethod(lambda *_, **__: pytest.fail("read")))
        with pytest.raises(InputError, match=r"secret: the file .* names these data, .* --data"):
            config(text).load_task()
    Config.from_yaml(text, "here", trust=True).load_task()
    config(text).load_task()  # named once, and so by the user
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(tmp_path / "other"))
    with pytest.raises(InputError, match="names these data"):
        config(text).load_task()
    Config("set", {}, {"data": str(path)}, TrainingSettings()).load_task()  # by calling Python
    config(text).load_task()


def test_yaml_runs_no_code():
    with pytest.raises(InputError, match="is not valid YAML"):
        config("!!python/object/apply:os.system ['true']")


@pytest.mark.parametrize("task", [*({"name": name} for name in TASKS), {"data": "x"}])
def test_every_setting_of_a_task_is_explained(task):
    schema = task_schema(task)
    for field in dataclasses.fields(schema):
        assert re.search(rf"^    {field.name}: \S", schema.__doc__, re.MULTILINE), field.name
