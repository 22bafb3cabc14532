"""Results: one JSON file each, written atomically, and reused only for the same settings."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from spacetime_en._util.errors import InputError
from spacetime_en._util.files import create_atomically, write_text_atomically
from spacetime_en._util.schema import (
    check_format,
    check_no_link,
    parse_json,
    read_json,
    read_text,
    typed,
)
from spacetime_en.runs.config import Config
from spacetime_en.training.settings import TrainingSettings

RESULTS = "experiments"  # the folder of the results
WHERE = ("accelerator", "devices", "num_nodes", "save_every")  # a training runs, not what it trains
MOST = 1 << 30  # bytes of a result, with the errors of all windows
WRITING = 5.0  # seconds for another machine to end what it is writing
Result = dict[str, Any]


def result_path(folder: Path, name: str) -> Path:
    """The file of a job's result."""
    return folder / RESULTS / f"{name}.json"


def read_result(folder: Path, name: str, kind: Any = dict[str, Any]) -> Result | None:
    """The result of a job, or None.

    Args:
        folder: of all results.
        name: of the job.
        kind: a dataclass of the required entries; there may be others.
    """
    path = result_path(folder, name)
    try:
        entries: Result = typed(parse_json(read_text(path, MOST), str(path)), Result, str(path))
        typed(entries, kind, str(path))
    except FileNotFoundError:
        return None
    except InputError as error:
        why = str(error).removeprefix(f"{path}: ").rstrip(".")
        raise InputError(f"{path}: is no result ({why}); delete it to make it again.") from None
    return entries


def write_result(folder: Path, name: str, result: Result) -> None:
    """Write the result of a job, one line per entry."""
    path = result_path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f'"{key}": {json.dumps(_rounded(value))}' for key, value in result.items())
    write_text_atomically(path, f"{{\n{lines}\n}}\n")


def written_once(path: Path, newest: int, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The entries of a JSON file, which the first of several machines writes for all.

    Args:
        newest: the number of the format.
        make: the entries besides the format, if there is no file yet.
    """
    check_no_link(path)
    if not path.exists():
        text = json.dumps({"format": newest, **make()}, indent=1) + "\n"
        try:
            with create_atomically(path) as temporary:
                temporary.write_text(text, "utf-8")
        except InputError:  # another machine was faster, or is writing it at this moment
            until = time.monotonic() + WRITING
            while not path.exists():
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
    entries: dict[str, Any] = read_json(path, dict[str, Any])
    check_format(entries.get("format", newest), newest, str(path))
    return entries


def settings_of(config: Config) -> dict[str, Any]:
    """The settings that determine a result, as stored in its file."""
    settings = config.to_dict()
    training = {name: settings["training"][name] for name in _deciding()}
    plain: dict[str, Any] = json.loads(json.dumps({**settings, "training": training}))
    return plain


def made_with(result: Result, config: Config) -> bool:
    """Whether a result was computed with the settings of `config`.

    Settings newer than the result had their defaults.
    """
    found = result.get("settings")
    if not isinstance(found, dict) or not isinstance(found.get("training"), dict):
        return False
    defaults = {name: getattr(TrainingSettings(), name) for name in _deciding()}
    return {**found, "training": defaults | found["training"]} == settings_of(config)


def _deciding() -> list[str]:
    return [field.name for field in fields(TrainingSettings) if field.name not in WHERE]


def _rounded(value: Any) -> Any:
    """Floats rounded to six digits, enough for a table, and None for infinite ones."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
