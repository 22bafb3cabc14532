import dataclasses

import pytest

from spacetime_en import SET, EGNNForecaster, Forecaster, InputError, build_model
from spacetime_en.config import FROM_DATA, Config, settings_of
from spacetime_en.data import TASKS, Trajectories
from spacetime_en.nn.forecaster import FULL_SYMMETRY
from spacetime_en.nn.presets import PRESETS
from spacetime_en.training import PAPER, TrainingSettings


class Own(Forecaster):
    """A user's model."""

    def __init__(self, nodes: int, width: int = 4) -> None:
        super().__init__()

    @property
    def symmetries(self):
        return FULL_SYMMETRY


def config(text):
    return Config.from_yaml(text, "here.yaml")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("task", [{"name": name} for name in TASKS] + [{"data": "folder"}])
def test_settings_are_those_of_the_signatures(preset, task):
    kinds = settings_of(preset, task)
    own = {f.name: f for f in dataclasses.fields(kinds["model"])}
    tied = {"nodes": 3} if preset in ("lstm", "ridge", "body", "kernel") else {}
    assert set(own) == set(PRESETS[preset].model(**tied).config)
    for name, value in PRESETS[preset].settings.items():
        assert own[name].default == value
    assert all(own[name].default is None for name in own if name in FROM_DATA)
    settings = {f.name: f.default for f in dataclasses.fields(kinds["task"])}
    assert settings["targets"] == "observed" or task == {"name": "egnn-nbody"}
    if "name" in task:
        assert settings.items() >= vars(TASKS[task["name"]]).items()
    else:
        assert {"length", "stride", "horizon", "counts", "noise", "noise_seed"} <= set(settings)


def test_from_yaml_and_back():
    text = """
    preset: set
    model: {hidden: 8, adjacency: edges}
    task: {name: charged, counts: [8, 2, 2], horizon: 1e3}
    training: {lr: 1e-3, epochs: 2, clip: null}
    """
    with pytest.raises(InputError, match=r"task\.horizon: expected int, found '1e3'"):
        config(text)
    one = config(text.replace("1e3", "1000"))
    assert one.task == {"name": "charged", "counts": (8, 2, 2), "horizon": 1000}
    assert one.training == TrainingSettings(
        **(PAPER["set"] | {"lr": 1e-3, "epochs": 2, "clip": None})
    )
    assert config(one.to_yaml()) == one
    assert config("{preset: set, task: charged}").training.lr == 4.45e-5


def test_a_resolved_config_holds_every_setting(tiny_task):
    one = config("{preset: set, task: {name: charged, counts: [40, 12, 12]}, model: {hidden: 8}}")
    model = one.build_model(tiny_task)
    resolved = one.resolved(model)
    assert isinstance(model, SET)
    assert resolved.model == model.config
    assert set(resolved.task) == {"name", "targets", *vars(TASKS["charged"])}
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
    one = config(f"{{preset: set-nonequivariant, task: {{data: {path}}}}}")
    settings = one.build_model(one.load_task()).config
    assert (settings["features"], settings["edge_features"], settings["dims"]) == (2, 0, 2)
    assert 500 < settings["length_scale"] < 2000
    given = dataclasses.replace(one, model={"length_scale": 3.0})
    assert given.build_model(one.load_task()).config["length_scale"] == 3.0
    named = config("{preset: egnn, task: charged}")
    assert named.build_model(tiny_task).config["length_scale"] == 1.0


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
        config("{preset: no.such.Model, task: charged}")
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
            "here.yaml: training.lr: expected float, found 'fast'",
        ),
        (
            "{preset: set, task: charged, model: {causal: maybe}}",
            "here.yaml: model.causal: expected bool, found 'maybe'",
        ),
        ("{preset: set, model: 3}", "here.yaml: model: expected settings, found 3"),
        ("{preset: set}", "here.yaml: expected a preset and a task"),
        ("{preset: set, task: {name: charged, data: x}}", "here.yaml: task: give either name or"),
        ("[1, 2]", "here.yaml: expected entries"),
        ("{a: [", "here.yaml: is not valid YAML"),
    ],
)
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        config(text)


def test_yaml_runs_no_code():
    with pytest.raises(InputError, match="is not valid YAML"):
        config("!!python/object/apply:os.system ['true']")
