"""Options that depend on which preset and which task were chosen.

``spacetime train set --task charged`` has the options of SET's constructor and of the charged
task. So the choice is looked up first, then the real parser is made of the signatures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import parse_yaml, read_text
from spacetime_en.nn.presets import find_preset
from spacetime_en.runs.config import (
    FROM_DATA,
    Config,
    may_read,
    settings_of,
    source_of,
    validated,
    without_source,
)
from spacetime_en.runs.run import CONFIG
from spacetime_en.training.settings import PRESET_SETTINGS, TrainingSettings


@dataclass(frozen=True)
class _Choice:
    """The options that decide which others there are."""

    config: Path | None = None
    task: str | None = None
    data: Path | None = None
    out: Path | None = None
    resume: bool = False
    trust: bool = False


@dataclass(frozen=True)
class Selection:
    """A preset and a task, and what a config file says of them.

    Args:
        preset: a preset's name or the import path of a class; None: not chosen yet.
        task: ``{"name": ...}`` or ``{"data": ...}``; empty: not chosen yet.
        model, task_settings, training: from the config file.
        trusted: whether data that the task names may be read.
    """

    preset: str | None = None
    task: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    task_settings: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    trusted: bool = True

    @classmethod
    def from_argv(cls, arguments: Sequence[str], *, positional: bool = True) -> Selection:
        """What the arguments and the config file that they name choose.

        Args:
            arguments: of the command.
            positional: whether the first may be the preset.
        """
        preset = None
        if positional and arguments and not arguments[0].startswith("-"):
            preset, *arguments = arguments
        choice, _ = tyro.cli(
            _Choice,
            args=[a for a in arguments if a not in ("-h", "--help")],
            return_unknown_args=True,
            add_help=False,
        )
        file: dict[str, Any] = {"model": {}, "task": {}, "training": {}}
        path = choice.config
        if path is None and preset is None and choice.resume and choice.out is not None:
            path = choice.out / CONFIG
        if preset is not None:
            find_preset(preset)  # typed by the user, so that a file may name it, too
        if path is not None:
            entries = parse_yaml(read_text(path), str(path))
            file = validated(entries, str(path), trust=choice.trust)
        if preset is not None and file.get("preset", preset) != preset:
            raise InputError(f"{path}: is for the preset {file['preset']!r}, not for {preset!r}.")
        if choice.task is not None and choice.data is not None:
            raise InputError("task: give either a task or data, not both.")
        task = source_of(file["task"])
        if choice.task is not None:
            task = {"name": choice.task}
        elif choice.data is not None:
            task = {"data": str(choice.data.resolve())}
        same_task = task == source_of(file["task"])
        settings = without_source(file["task"])
        return cls(
            file.get("preset", preset),
            task,
            file["model"],
            settings if same_task else {},
            file["training"],
            choice.trust or choice.data is not None or may_read(task),
        )

    def fields(self) -> list[tuple[str, Any, Any]]:
        """The options of the chosen model, task and training, as fields of a dataclass."""
        chosen: list[tuple[str, Any, Any]] = []
        preset, task = self.preset or "set", self.task or {"name": "charged"}
        kinds = settings_of(preset, task)
        if self.preset is not None:
            chosen.append(("model", kinds["model"], kinds["model"](**self.model)))
        if self.task:
            chosen.append(task_field(kinds["task"], self.task_settings))
        training = TrainingSettings(**(PRESET_SETTINGS.get(preset, {}) | dict(self.training)))
        # Without a prefix: --lr, --epochs.
        chosen.append(("training", Annotated[TrainingSettings, tyro.conf.arg(name="")], training))
        return chosen

    def config(self, parsed: Any) -> Config:
        """The config that the parsed options make."""
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


def task_field(kind: type[Any], settings: Mapping[str, Any]) -> tuple[str, Any, Any]:
    """The settings of a task as options ``--task.target_steps`` and so on."""
    return ("task_settings", Annotated[kind, tyro.conf.arg(name="task")], kind(**settings))
