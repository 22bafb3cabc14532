"""Options that depend on the preset and the task.

``spacetime train set --task charged`` has the options of SET's constructor and of the charged
task. So these two words are looked up first, and the parser is built for them.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, get_args

import tyro

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import parse_yaml, read_text
from spacetime_en.nn.presets import PRESETS, find_preset
from spacetime_en.runs.config import (
    FROM_DATA,
    Config,
    Sections,
    may_read,
    model_schema,
    source_of,
    task_schema,
)
from spacetime_en.runs.run import CONFIG_FILE
from spacetime_en.training.settings import TrainingSettings, Whose, preset_defaults

C = TypeVar("C")
Field = tuple[str, Any, Any]  # of a dataclass: name, type, default


@dataclass(frozen=True)
class Selection:
    """A preset and a task, and the settings of a config file.

    Args:
        preset: a preset's name or the import path of a class; None: not selected yet.
        task: ``{"name": ...}`` or ``{"data": ...}``; empty: not selected yet.
        model, task_settings, training: settings from the config file.
        trusted: whether the data that the task names may be read.
        defaults: settings to use for the preset, the paper's or ours; None: it depends on the task.
    """

    preset: str | None = None
    task: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    task_settings: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    trusted: bool = True
    defaults: Whose | None = None

    @classmethod
    def from_arguments(cls, arguments: Sequence[str]) -> Self:
        """The selection of ``PRESET --task NAME --config FILE ...``; any part may be missing."""
        preset = None
        if arguments and not arguments[0].startswith("-"):
            preset = arguments[0]
            find_preset(preset)  # typed by the user, so it may be imported
        task, trust = task_in(arguments), "--trust" in arguments
        path, out = value_of("--config", arguments), value_of("--out", arguments)
        if path is None and preset is None and out is not None and "--resume" in arguments:
            path = str(Path(out, CONFIG_FILE))
        named_defaults = value_of("--settings", arguments)
        # (The parser rejects other words.)
        defaults = next((whose for whose in get_args(Whose) if whose == named_defaults), None)
        if path is None:
            return cls(preset, task, defaults=defaults)
        file = Sections.parse(parse_yaml(read_text(Path(path)), path), path)
        if preset is not None and file.preset not in (None, preset):
            raise InputError(f"{path}: is for the preset {file.preset!r}, not for {preset!r}.")
        same_task = not task or task == source_of(file.task)
        named = task or source_of(file.task)
        file = dataclasses.replace(
            file,
            preset=preset or file.preset,
            task=file.task if same_task else named,
        ).validated(trust=trust)
        settings = {k: v for k, v in file.task.items() if k not in named}
        trusted = bool(task) or trust or may_read(named)
        return cls(file.preset, named, file.model, settings, file.training, trusted, defaults)

    def fields(self) -> list[Field]:
        """The options of the model, the task and the training, as fields of a dataclass."""
        fields: list[Field] = []
        defaults = preset_defaults(self.preset or "set", self.task.get("name"), self.defaults)
        if self.preset is not None:
            schema = model_schema(self.preset)
            fields.append(("model", schema, schema(**{**defaults.model, **self.model})))
        if self.task:
            fields.append(task_field(self.task, self.task_settings))
        training = {**defaults.training, **self.training}
        # Without a prefix: --lr, --epochs.
        kind = Annotated[TrainingSettings, tyro.conf.arg(name="")]
        fields.append(("training", kind, TrainingSettings(**training)))
        return fields

    def config(self, parsed: Any) -> Config:
        """The config for the parsed options."""
        if self.preset is None:
            raise InputError("preset: which model? Name a preset, such as: spacetime train set ...")
        if parsed.preset not in ("", self.preset):
            raise InputError(
                f"preset: is {self.preset!r} already, what does {parsed.preset!r} stand for?"
            )
        if not self.task:
            raise InputError("task: what to train on? Give --task NAME or --data FOLDER.")
        model = {
            name: value
            for name, value in dataclasses.asdict(parsed.model).items()
            if not (name in FROM_DATA and value is None)
        }
        task = {**self.task, **dataclasses.asdict(parsed.task_settings)}
        return Config(self.preset, model, task, parsed.training, self.trusted)


def evaluation_of(run: Path, preset: str) -> str:
    """The command that evaluates a run; one's own class is imported only if that is asked for."""
    return f"spacetime evaluate {run}{'' if preset in PRESETS else ' --trust'}"


def task_in(arguments: Sequence[str]) -> dict[str, str]:
    """The task named by ``--task NAME`` or ``--data FOLDER``; empty if there is neither."""
    name, data = value_of("--task", arguments), value_of("--data", arguments)
    if name is not None and data is not None:
        raise InputError("task: give either a task or data, not both.")
    if data is not None:
        return {"data": os.path.realpath(data)}  # (unlike Path.resolve, handles a loop of links)
    return {} if name is None else {"name": name}


def task_field(task: Mapping[str, Any], settings: Mapping[str, Any]) -> Field:
    """The settings of a task as options ``--task.noise`` and so on."""
    schema = task_schema(task)
    return ("task_settings", Annotated[schema, tyro.conf.arg(name="task")], schema(**settings))


def with_options(command: type[C], fields: Sequence[Field], **attributes: Any) -> type[C]:
    """A subclass of a command with further options and these class attributes."""
    namespace = {**attributes, "__doc__": command.__doc__}
    return dataclasses.make_dataclass(
        command.__name__, fields, bases=(command,), namespace=namespace, frozen=True, kw_only=True
    )


def value_of(option: str, arguments: Sequence[str]) -> str | None:
    """The word after an option, or after its ``=``; the last occurrence counts."""
    value = None
    for word, following in pairwise([*arguments, ""]):
        if word.startswith(f"{option}="):
            value = word.partition("=")[2]
        elif word == option and following and not following.startswith("--"):
            value = following
    return None if value == "None" else value
