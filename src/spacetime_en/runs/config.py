"""What a training is made of: a preset, a task, and how; typed from the code's own signatures.

A config is written as YAML. Whatever is left out has its default::

    format: 1                              # of this file
    preset: set                            # or the import path of your own class (needs trust)
    model: {hidden: 64}                    # arguments of the model's class
    task: {name: charged, target_steps: 100} # or {data: FOLDER, length: 5}
    training: {lr: 1.0e-3, epochs: 10}     # see TrainingSettings
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import yaml

from spacetime_en._util.errors import InputError, no_such
from spacetime_en._util.schema import check_format, parse_yaml, typed
from spacetime_en._util.trust import remember, was_named
from spacetime_en.data import TASKS, Task, Trajectories, Windows, load_task
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.loading import build
from spacetime_en.nn.presets import arguments_of, build_model, find_preset
from spacetime_en.training.settings import PRESET_SETTINGS, TrainingSettings

# Arguments of models that the training windows tell, unless they are given.
FROM_DATA = (
    *("features", "node_features", "edge_features", "dims", "nodes", "frames", "parents", "up"),
    *("length_scale", "time_scale"),
)
Section = Literal["model", "task", "training"]
SECTIONS: tuple[Section, ...] = get_args(Section)
FORMAT = 1
_VERIFIED = 1 << 28  # numbers whose checksum is compared in a few seconds


@dataclass(frozen=True)
class Config:
    """A preset, the settings of its model and of the task that differ from the defaults, and how.

    Args:
        preset: a preset's name, or the import path of a class.
        model: arguments of the model's class.
        task: ``name`` or ``data``, and their settings.
        training: how to train.
        trusted: whether the folder ``data`` of the task was named by the user. In a config from a
            file it is read only if it was.
    """

    preset: str
    model: Mapping[str, Any]
    task: Mapping[str, Any]
    training: TrainingSettings
    trusted: bool = field(default=True, compare=False, repr=False)

    def load_task(self) -> Task:
        """The task, its data made or opened."""
        data = self.task.get("data")
        if data is not None and not self.trusted:
            raise InputError(
                f"{data}: the file of this run or config names these data, and you never have; "
                "add --data and their folder, or --trust (in Python, trust=True) to read them."
            )
        task = open_task(self.task)
        if data is not None:
            remember(data)
        return task

    def build_model(self, task: Task) -> Forecaster:
        """The model for the windows of `task`, its weights drawn by torch's current seed."""
        graph, _ = task.train[:1000]
        model = find_preset(self.preset).model
        settings = dict(self.model)
        data_set = TASKS.get(self.task.get("name", ""))
        if data_set is None or data_set.needs_scales:
            known = arguments_of(model)
            missing = [
                s for s in ("length_scale", "time_scale") if s in known and s not in settings
            ]
            settings |= {s: graph.scales()[s] for s in missing}
        return build(lambda: build_model(self.preset, like=graph, **settings), "model")

    def resolved(self, model: Forecaster) -> Config:
        """The same with every setting of the model and the task written out."""
        sections = settings_of(self.preset, self.task)
        task = dataclasses.asdict(sections["task"](**without_source(self.task)))
        task = source_of(self.task) | task
        return dataclasses.replace(self, model=dict(model.config), task=task)

    def to_yaml(self) -> str:
        """As YAML that :meth:`from_yaml` takes."""
        plain = {
            "format": FORMAT,
            "preset": self.preset,
            "model": dict(self.model),
            "task": dict(self.task),
            "training": dataclasses.asdict(self.training),
        }
        return str(yaml.safe_dump(_plain(plain), sort_keys=False, allow_unicode=True))

    @classmethod
    def from_yaml(cls, text: str, where: str, *, trust: bool = False) -> Config:
        """From YAML, all names and types checked; `where` begins the sentence if they are wrong.

        With `trust`, classes outside of this package and folders of data that it names count.
        """
        return cls.from_dict(parse_yaml(text, where), where, trust=trust)

    @classmethod
    def from_dict(cls, entries: Any, where: str, *, trust: bool = False) -> Config:
        """From the entries of a config file."""
        read = validated(entries, where, trust=trust)
        if "preset" not in read or not source_of(read["task"]):
            raise InputError(f"{where}: expected a preset and a task.")
        return cls(
            read["preset"],
            read["model"],
            read["task"],
            training_settings(read["preset"], read["training"], where),
            trust or may_read(read["task"]),
        )


def settings_of(preset: str, task: Mapping[str, Any]) -> dict[Section, type[Any]]:
    """For each section a dataclass of its settings, made from the signature that takes them."""
    model, preset_settings = find_preset(preset)
    own = arguments_of(model)
    try:
        hints = get_type_hints(model.__init__, include_extras=True) if own else {}
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
            untyped = Any if default is None else type(default)
            arguments.append((name, hints.get(name, untyped), default))
    return {
        "model": _dataclass(model.__name__, arguments, inspect.getdoc(model)),
        "task": _task_settings(task),
        "training": TrainingSettings,
    }


def _task_settings(task: Mapping[str, Any]) -> type[Any]:
    if "name" in task:
        if task["name"] not in TASKS:
            raise no_such("task", task["name"], TASKS)
        data_set = TASKS[task["name"]]
        types = data_set.types()
        fields = [(name, types[name], value) for name, value in data_set.settings.items()]
        return _dataclass(f"Task{task['name'].title()}", fields, data_set.__doc__)
    fields = []
    for function, skipped in (
        (Task.from_trajectories, ("trajectories", "name", "audit", "options")),
        (Windows.__init__, ("self", "trajectories", "runs", "steps", "starts", "dtype")),
    ):
        hints = get_type_hints(function, include_extras=True)
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


def may_read(task: Mapping[str, Any]) -> bool:
    """Whether the data of a task that a file names may be read: made by name, or named before."""
    return task.get("data") is None or was_named(task["data"])


def training_settings(preset: str, own: Mapping[str, Any], where: str) -> TrainingSettings:
    """The preset's settings, replaced by those of a file."""
    try:
        return TrainingSettings(**(PRESET_SETTINGS.get(preset, {}) | dict(own)))
    except InputError as error:
        raise InputError(f"{where}: training.{error}") from None


def source_of(task: Mapping[str, Any]) -> dict[str, Any]:
    """Where the data of a task come from: its ``name`` or its ``data``."""
    return {key: task[key] for key in ("name", "data") if task.get(key) is not None}


def without_source(task: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a task alone."""
    return {key: value for key, value in task.items() if key not in ("name", "data")}


def validated(entries: Any, where: str, *, trust: bool = False) -> dict[str, Any]:
    """The entries of a config file, all names known, all values of their types.

    Args:
        entries: as they stand in the file.
        where: begins the sentence if they are wrong.
        trust: whether an import path among them may be followed.
    Returns: ``preset``, if there is one, and the settings given in ``model``, ``task`` and
        ``training``, which may be empty.
    """
    if not isinstance(entries, dict | None):
        raise InputError(f"{where}: expected entries such as 'preset: set', found {entries!r:.40}.")
    read = dict(entries or {})
    check_format(read.pop("format", FORMAT), FORMAT, where)
    for key in read:
        if key not in ("preset", *SECTIONS):
            raise _unknown(where, str(key), ("preset", *SECTIONS))
    if isinstance(read.get("task"), str):
        read["task"] = {"name": read["task"]}
    for section in SECTIONS:
        read[section] = {} if read.get(section) is None else read[section]
        if not isinstance(read[section], dict):
            raise InputError(f"{where}: {section}: expected settings, found {read[section]!r:.40}.")
    if {"name", "data"} <= set(read["task"]):
        raise InputError(f"{where}: task: give either name or data, not both.")
    read["preset"] = typed(read.get("preset"), str | None, f"{where}: preset")
    for key, value in source_of(read["task"]).items():
        typed(value, str, f"{where}: task.{key}")
    if read["preset"] is None or not source_of(read["task"]):
        return {key: value for key, value in read.items() if value is not None}
    try:
        find_preset(read["preset"], trust=trust)
        kinds = settings_of(read["preset"], read["task"])
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return read | _typed(kinds, {section: read[section] for section in SECTIONS}, where)


def _typed(kinds: dict[Section, type[Any]], values: dict[str, Any], where: str) -> dict[str, Any]:
    """The values of all sections as the types that they have in `kinds`."""
    sections = []
    for section, kind in kinds.items():
        hints = get_type_hints(kind, include_extras=True)
        if section == "task":
            hints |= {"name": str, "data": str}
        for key in values[section]:
            if key not in hints:
                raise _unknown(where, f"{section}.{key}", [f"{section}.{k}" for k in hints])
        given = [(key, hints[key]) for key in values[section]]
        sections.append((section, dataclasses.make_dataclass(section, given)))
    try:
        whole = typed(values, dataclasses.make_dataclass("Config", sections), where, strict=False)
    except TypeError as error:
        raise InputError(f"{where}: a type of its settings is not known ({error}).") from None
    return {section: vars(getattr(whole, section)) for section in values}


def _unknown(where: str, key: str, known: Any) -> InputError:
    return InputError(f"{where}: {no_such('setting', key, known)}")


def _plain(value: Any) -> Any:
    """Lists for tuples and text for paths, as YAML wants them."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
