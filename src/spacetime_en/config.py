"""What a training is made of: a preset, a task, and how; typed from the code's own signatures.

A config is written as YAML with four entries. Whatever is left out has its default::

    preset: set                            # or the import path of your own class
    model: {hidden: 64}                    # arguments of the model's class
    task: {name: charged, horizon: 1000}   # or {data: FOLDER, length: 5}
    training: {lr: 1.0e-3, epochs: 10}     # see TrainingSettings
"""

from __future__ import annotations

import dataclasses
import inspect
import io
import math
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

import tyro
import yaml

from spacetime_en.data import TASKS, Task, Trajectories, Windows, load_task
from spacetime_en.data.tasks import of_order_one
from spacetime_en.errors import InputError, no_such
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.presets import arguments_of, build_model, find_preset
from spacetime_en.training.settings import PRESET_SETTINGS, TrainingSettings

# Arguments of models that the training windows tell, unless they are given.
FROM_DATA = (
    *("features", "node_features", "edge_features", "dims", "nodes", "frames", "parents", "up"),
    *("length_scale", "time_scale"),
)
Section = Literal["model", "task", "training"]
_VERIFIED = 1 << 28  # numbers whose checksum is compared in a few seconds


@dataclass(frozen=True)
class Config:
    """A preset, the settings of its model and of the task that differ from the defaults, and how.

    Args:
        preset: a preset's name, or the import path of a class.
        model: arguments of the model's class.
        task: ``name`` or ``data``, and their settings.
        training: how to train.
    """

    preset: str
    model: Mapping[str, Any]
    task: Mapping[str, Any]
    training: TrainingSettings

    def load_task(self) -> Task:
        """The task, its data made or opened."""
        return open_task(self.task)

    def build_model(self, task: Task) -> Forecaster:
        """The model for the windows of `task`, its weights drawn by torch's current seed."""
        graph, _ = task.train[:1000]
        model = find_preset(self.preset).model
        settings = dict(self.model)
        if not of_order_one(self.task.get("name")):
            known = arguments_of(model)
            missing = [
                s for s in ("length_scale", "time_scale") if s in known and s not in settings
            ]
            settings |= {s: graph.scales()[s] for s in missing}
        return build_model(self.preset, like=graph, **settings)

    def resolved(self, model: Forecaster) -> Config:
        """The same with every setting of the model and the task written out."""
        sections = settings_of(self.preset, self.task)
        task = dataclasses.asdict(sections["task"](**without_source(self.task)))
        task = source_of(self.task) | task
        return dataclasses.replace(self, model=dict(model.config), task=task)

    def to_yaml(self) -> str:
        """As YAML that :meth:`from_yaml` takes."""
        plain = {
            "preset": self.preset,
            "model": dict(self.model),
            "task": dict(self.task),
            "training": dataclasses.asdict(self.training),
        }
        return str(yaml.safe_dump(_plain(plain), sort_keys=False, allow_unicode=True))

    @classmethod
    def from_yaml(cls, text: str, where: str) -> Config:
        """From YAML, all names and types checked; `where` begins the sentence if they are wrong."""
        return cls.of(parse_yaml(text, where), where)

    @classmethod
    def of(cls, entries: dict[str, Any], where: str) -> Config:
        """From the entries of a config file."""
        read = checked(entries, where)
        if "preset" not in read or not {"name", "data"} & set(read["task"]):
            raise InputError(f"{where}: expected a preset and a task.")
        training = PRESET_SETTINGS.get(read["preset"], {}) | read["training"]
        return cls(read["preset"], read["model"], read["task"], TrainingSettings(**training))


def settings_of(preset: str, task: Mapping[str, Any]) -> dict[Section, type[Any]]:
    """For each section a dataclass of its settings, made from the signature that takes them."""
    model, preset_settings = find_preset(preset)
    own = arguments_of(model)
    try:
        hints = get_type_hints(model.__init__) if own else {}
    except NameError as error:
        raise InputError(f"{preset}: a type of its arguments is not known ({error}).") from None
    arguments: list[tuple[str, Any, Any]] = []
    for name, parameter in own.items():
        default = preset_settings.get(name, parameter.default)
        if name in FROM_DATA:
            number = float if name.endswith("scale") else int
            arguments.append((name, hints.get(name, number) | None, None))
        elif default is parameter.empty:
            raise InputError(f"{preset}: its argument {name} needs a default value.")
        else:
            arguments.append((name, hints.get(name, type(default)), default))
    return {
        "model": _dataclass(model.__name__, arguments, inspect.getdoc(model)),
        "task": _task_settings(task),
        "training": TrainingSettings,
    }


def _task_settings(task: Mapping[str, Any]) -> type[Any]:
    if "name" in task:
        if task["name"] not in TASKS:
            raise no_such("task", task["name"], TASKS)
        recipe = TASKS[task["name"]]
        hints = get_type_hints(type(recipe))
        fields = [(name, hints[name], default) for name, default in vars(recipe).items()]
        targets = inspect.signature(load_task).parameters["targets"]
        fields.append(("targets", get_type_hints(load_task)["targets"], targets.default))
        return _dataclass(f"Task{task['name'].title()}", fields, type(recipe).__doc__)
    fields = []
    for function, skipped in (
        (Task.from_trajectories, ("trajectories", "name", "audit", "options")),
        (Windows.__init__, ("self", "trajectories", "runs", "steps", "starts", "dtype")),
    ):
        hints = get_type_hints(function)
        for name, parameter in inspect.signature(function).parameters.items():
            if name not in skipped and name not in {field[0] for field in fields}:
                fields.append((name, hints[name], parameter.default))
    return _dataclass("TaskData", fields, inspect.getdoc(Task.from_trajectories))


def _dataclass(name: str, fields: list[tuple[str, Any, Any]], doc: str | None) -> type[Any]:
    made = dataclasses.make_dataclass(name, fields, frozen=True)
    made.__doc__ = doc
    return made


def open_task(task: Mapping[str, Any]) -> Task:
    """The task of a config: ``name`` and settings, or ``data`` and settings."""
    settings = without_source(task)
    if "name" in task:
        return load_task(task["name"], **settings)
    trajectories = Trajectories.open(task["data"])
    if math.prod(trajectories.x.shape) < _VERIFIED:
        trajectories = Trajectories.open(task["data"], verify=True)
    return Task.from_trajectories(trajectories, name=Path(task["data"]).name, **settings)


def source_of(task: Mapping[str, Any]) -> dict[str, Any]:
    """Where the data of a task come from: its ``name`` or its ``data``."""
    return {key: task[key] for key in ("name", "data") if task.get(key) is not None}


def without_source(task: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a task alone."""
    return {key: value for key, value in task.items() if key not in ("name", "data")}


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """The entries of a config file, as they stand."""
    try:
        read = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise InputError(f"{where}: is not valid YAML ({' '.join(str(error).split())}).") from None
    if not isinstance(read, dict):
        raise InputError(f"{where}: expected entries such as 'preset: set', found {read!r:.40}.")
    return read


def checked(entries: dict[str, Any], where: str) -> dict[str, Any]:
    """The entries with every name known and every value of its type; empty what was left out."""
    read = dict(entries)
    if not isinstance(read.get("preset", ""), str):
        raise InputError(f"{where}: preset: expected a name, found {read['preset']!r:.40}.")
    for key in read:
        if key not in ("preset", "model", "task", "training"):
            raise _unknown(where, str(key), ("preset", "model", "task", "training"))
    if isinstance(read.get("task"), dict) and {"name", "data"} <= set(read["task"]):
        raise InputError(f"{where}: task: give either name or data, not both.")
    if isinstance(read.get("task"), str):
        read["task"] = {"name": read["task"]}
    for section in ("model", "task", "training"):
        read[section] = read.get(section) or {}
        if not isinstance(read[section], dict):
            raise InputError(f"{where}: {section}: expected settings, found {read[section]!r:.40}.")
    if "preset" in read and {"name", "data"} & set(read["task"]):
        for section, kind in settings_of(read["preset"], read["task"]).items():
            known = [field.name for field in dataclasses.fields(kind)]
            known += ["name", "data"] if section == "task" else []
            for key in read[section]:
                if key not in known:
                    raise _unknown(where, f"{section}.{key}", [f"{section}.{k}" for k in known])
            read[section] = _typed(kind, read[section], f"{where}: {section}")
    return read


def _typed(kind: type[Any], values: dict[str, Any], where: str) -> dict[str, Any]:
    """The values as the types that `kind` has for them, by the rules of the command line."""
    hints, out = get_type_hints(kind, include_extras=True), dict(values)
    for key in values.keys() & hints.keys():
        value = values[key]
        one = dataclasses.make_dataclass("One", [(key, hints[key])])
        words = [str(v) for v in value] if isinstance(value, list | tuple) else [str(value)]
        arguments = [f"--{key}", *words] if len(words) != 1 else [f"--{key}={words[0]}"]
        options = (tyro.conf.FlagConversionOff,)
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                read: Any = tyro.cli(one, args=arguments, use_underscores=True, config=options)
        except SystemExit:
            expected = getattr(hints[key], "__name__", str(hints[key])).replace("typing.", "")
            raise InputError(f"{where}.{key}: expected {expected}, found {value!r}.") from None
        out[key] = getattr(read, key)
    return out


def _unknown(where: str, key: str, known: Any) -> InputError:
    return InputError(f"{where}: {no_such('setting', key, known)}")


def _plain(value: Any) -> Any:
    """Lists for tuples and text for paths, as YAML wants them."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
