"""The config of a training: a preset, a task, and the settings of model, task and training.

The settings and their types are those of the signatures that take them. A config is written as
YAML; anything left out has its default::

    format: 1                                 # version of this file format
    preset: set                               # or the import path of your own class (needs trust)
    model: {hidden: 64}                       # arguments of the model's class
    task: {name: charged, target_steps: 100}  # or {data: FOLDER, length: 5}
    training: {lr: 1.0e-3, epochs: 10}        # see TrainingSettings
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from spacetime_en._util.errors import InputError, no_such
from spacetime_en._util.schema import check_format, parse_yaml, shortened, typed
from spacetime_en._util.trust import remember, was_named
from spacetime_en.data import TASKS, Task, Trajectories, Windows, load_task
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.loading import build
from spacetime_en.nn.presets import arguments_of, build_model, find_preset
from spacetime_en.training.settings import TrainingSettings, preset_defaults

# Model arguments that are inferred from the training windows unless given.
FROM_DATA = (
    *("features", "node_features", "edge_features", "dims", "nodes", "frames", "parents", "up"),
    *("targets", "length_scale", "time_scale"),
)
SECTIONS = ("model", "task", "training")
CONFIG_FORMAT = 1
_VERIFIED = 1 << 28  # values; the checksums of larger data are not verified, which would take long


@dataclass(frozen=True)
class Config:
    """What to train, on what, and how.

    Args:
        preset: a preset's name, or the import path of a class.
        model: arguments of the model's class that differ from the preset's (which has no dropout,
            except on the paper's tasks).
        task: ``name`` or ``data``, and settings that differ from the defaults.
        training: how to train.
        trusted: whether the folder ``data`` of the task may be read: the user named it, or trusts
            the file that does.
    """

    preset: str
    model: Mapping[str, Any]
    task: Mapping[str, Any]
    training: TrainingSettings
    trusted: bool = field(default=True, compare=False, repr=False)

    def load_task(self) -> Task:
        """Load the task: open its data, or simulate them."""
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
        """Build the model for the windows of `task`; the initial weights depend on torch's seed."""
        graph, _ = task.train[:1000]
        model = find_preset(self.preset).model
        settings = {**preset_defaults(self.preset, self.task.get("name")).model, **self.model}
        data_set = TASKS.get(self.task.get("name", ""))
        if data_set is None or data_set.needs_scales:
            names = arguments_of(model)
            missing = [
                s for s in ("length_scale", "time_scale") if s in names and s not in settings
            ]
            settings |= {s: graph.scales()[s] for s in missing}
        return build(lambda: build_model(self.preset, like=graph, **settings), "model")

    def resolved(self, model: Forecaster) -> Config:
        """The config with every setting of the model and the task written out."""
        settings = task_schema(self.task)(**without_source(self.task))
        task = source_of(self.task) | dataclasses.asdict(settings)
        return dataclasses.replace(self, model=dict(model.config), task=task)

    def to_dict(self) -> dict[str, Any]:
        """The entries of a config file, which :meth:`from_dict` reads."""
        sections = {"model": dict(self.model), "task": dict(self.task)}
        return {"preset": self.preset, **sections, "training": dataclasses.asdict(self.training)}

    def to_yaml(self) -> str:
        """Convert to YAML, which :meth:`from_yaml` reads."""
        entries = _plain({"format": CONFIG_FORMAT, **self.to_dict()})
        return str(yaml.safe_dump(entries, sort_keys=False, allow_unicode=True))

    @classmethod
    def from_yaml(cls, text: str, where: str, *, trust: bool = False) -> Config:
        """Read YAML, and check all names and types.

        Args:
            text: the YAML.
            where: used at the start of error messages, such as the name of the file.
            trust: whether the class that it names may be imported, and its data be read.
        """
        return cls.from_dict(parse_yaml(text, where), where, trust=trust)

    @classmethod
    def from_dict(cls, entries: Any, where: str, *, trust: bool = False) -> Config:
        """Read the entries of a config file; for the arguments see :meth:`from_yaml`."""
        file = Sections.parse(entries, where).validated(trust=trust)
        if file.preset is None or not source_of(file.task):
            raise InputError(f"{where}: expected a preset and a task.")
        try:
            defaults = preset_defaults(file.preset, file.task.get("name")).training
            training = TrainingSettings(**{**defaults, **file.training})
        except InputError as error:
            raise InputError(f"{where}: training.{error}") from None
        trusted = trust or may_read(file.task)
        return cls(file.preset, file.model, file.task, training, trusted)


@dataclass(frozen=True)
class Sections:
    """The sections of a config file, any of which may be missing.

    Args:
        where: used at the start of error messages, such as the name of the file.
        preset: a preset's name or an import path; None: not given.
        model, task, training: the settings given.
    """

    where: str
    preset: str | None
    model: Mapping[str, Any]
    task: Mapping[str, Any]
    training: Mapping[str, Any]

    @classmethod
    def parse(cls, entries: Any, where: str) -> Sections:
        """Read the entries of a file, without checking the settings."""
        if not isinstance(entries, dict | None):
            raise InputError(
                f"{where}: expected entries such as 'preset: set', found {entries!r:.40}."
            )
        entries = dict(entries or {})
        check_format(entries.pop("format", CONFIG_FORMAT), CONFIG_FORMAT, where)
        for key in entries:
            if key not in ("preset", *SECTIONS):
                raise _unknown(where, str(key), ("preset", *SECTIONS))
        if isinstance(entries.get("task"), str):
            entries["task"] = {"name": entries["task"]}
        settings = {key: entries.get(key) for key in SECTIONS}
        settings = {key: {} if value is None else value for key, value in settings.items()}
        for key, value in settings.items():
            if not isinstance(value, dict):
                raise InputError(f"{where}: {key}: expected settings, found {value!r:.40}.")
        if {"name", "data"} <= set(settings["task"]):
            raise InputError(f"{where}: task: give either name or data, not both.")
        for key, value in source_of(settings["task"]).items():
            if "\0" in typed(value, str, f"{where}: task.{key}"):
                raise InputError(f"{where}: task.{key}: {shortened(value)} cannot be a name.")
        preset = typed(entries.get("preset"), str | None, f"{where}: preset")
        return cls(where, preset, **settings)

    def validated(self, *, trust: bool = False) -> Sections:
        """Check names and types of all settings, and convert them to their types.

        Those of the model can be checked only with a preset, those of the task with its source.

        Args:
            trust: whether the class that the file names may be imported.
        """
        schemas: dict[str, type[Any]] = {"training": TrainingSettings}
        try:
            if self.preset is not None:
                find_preset(self.preset, trust=trust)
                schemas["model"] = model_schema(self.preset)
            if source_of(self.task):
                schemas["task"] = task_schema(self.task)
        except InputError as error:
            raise InputError(f"{self.where}: {error}") from None
        sections: dict[str, Any] = {name: self._validated(name, s) for name, s in schemas.items()}
        return dataclasses.replace(self, **sections)

    def _validated(self, section: str, schema: type[Any]) -> dict[str, Any]:
        settings = getattr(self, section)
        hints = get_type_hints(schema, include_extras=True)
        if section == "task":
            hints |= {"name": str, "data": str}
        for key in settings:
            if key not in hints:
                raise _unknown(self.where, f"{section}.{key}", [f"{section}.{k}" for k in hints])
        # One dataclass inside another, so that error messages say "training.lr".
        inner = dataclasses.make_dataclass(section, [(key, hints[key]) for key in settings])
        outer = dataclasses.make_dataclass("Config", [(section, inner)])
        try:
            converted = typed({section: settings}, outer, self.where, strict=False)
        except TypeError as error:
            raise InputError(
                f"{self.where}: a type of its settings is not known ({error})."
            ) from None
        return dict(vars(getattr(converted, section)))


def model_schema(preset: str) -> type[Any]:
    """A dataclass of the settings of a preset's model, from its constructor's signature."""
    model, defaults = find_preset(preset)
    parameters = arguments_of(model)
    try:
        hints = get_type_hints(model.__init__, include_extras=True) if parameters else {}
    except NameError as error:
        raise InputError(f"{preset}: a type of its arguments is not known ({error}).") from None
    fields: list[tuple[str, Any, Any]] = []
    for name, parameter in parameters.items():
        default = defaults.get(name, parameter.default)
        if name in FROM_DATA:
            number = float if name.endswith("scale") else int
            fields.append((name, hints.get(name, number) | None, None))
        elif default is parameter.empty:
            raise InputError(f"{preset}: its argument {name} needs a default value.")
        else:
            untyped = Any if default is None else type(default)
            fields.append((name, hints.get(name, untyped), default))
    return _dataclass(model.__name__, fields, inspect.getdoc(model))


def task_schema(task: Mapping[str, Any]) -> type[Any]:
    """A dataclass of the settings of a named task, or of windows cut from a data set."""
    if "name" in task:
        if task["name"] not in TASKS:
            raise no_such("task", task["name"], TASKS)
        data_set = TASKS[task["name"]]
        types = get_type_hints(type(data_set), include_extras=True)
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
    return _dataclass("TaskData", fields, inspect.getdoc(Task.from_trajectories), Windows.__doc__)


def _dataclass(name: str, fields: list[tuple[str, Any, Any]], *docs: str | None) -> type[Any]:
    """A dataclass whose docstring explains each field, as the first of `docs` that does."""
    schema = dataclasses.make_dataclass(name, fields, frozen=True)
    texts = [inspect.cleandoc(doc or "") for doc in docs]
    explained: dict[str, str] = {}
    for text in reversed(texts):
        explained |= _explained(text)
    entries = [f"    {field}: {explained[field]}" for field, *_ in fields if field in explained]
    schema.__doc__ = "\n".join([texts[0].partition("Args:")[0].strip(), "", "Args:", *entries])
    return schema


def _explained(doc: str) -> dict[str, str]:
    """The entries of a docstring's "Args:" section by argument; ``a, b: text`` counts for both."""
    section = re.search(r"^Args:\n((?:[ ].*\n?|\n)*)", doc, re.MULTILINE)
    explained: dict[str, str] = {}
    for entry in re.finditer(
        r"^ {4}(\w[\w, ]*):((?:.*\n?)(?: {5,}.*\n?)*)", section[1] if section else "", re.MULTILINE
    ):
        words = re.sub(r":\w+:`~?([^`]*)`|``", r"\1", " ".join(entry[2].split()))
        explained |= dict.fromkeys(re.split(r",\s*", entry[1]), words)
    return explained


def open_task(task: Mapping[str, Any]) -> Task:
    """Load the task of a config: ``name`` or ``data``, and settings."""
    settings = without_source(task)
    if "name" in task:
        return load_task(task["name"], **settings)
    trajectories = Trajectories.open(task["data"])
    if math.prod(trajectories.x.shape) < _VERIFIED:
        trajectories = Trajectories.open(task["data"], verify=True)
    return Task.from_trajectories(trajectories, name=Path(task["data"]).name, **settings)


def may_read(task: Mapping[str, Any]) -> bool:
    """Whether the data of a task in a file may be read: none, or named by the user before."""
    return task.get("data") is None or was_named(task["data"])


def source_of(task: Mapping[str, Any]) -> dict[str, Any]:
    """The source of a task: its ``name`` or its ``data``."""
    return {key: task[key] for key in ("name", "data") if task.get(key) is not None}


def without_source(task: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a task, without its source."""
    return {key: value for key, value in task.items() if key not in ("name", "data")}


def _unknown(where: str, key: str, choices: Iterable[str]) -> InputError:
    return InputError(f"{where}: {no_such('setting', key, choices)}")


def _plain(value: Any) -> Any:
    """Convert tuples to lists and paths to text, for YAML."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
