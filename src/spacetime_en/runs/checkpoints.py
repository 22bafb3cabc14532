"""Checkpoints: how far a training has come, as named tensors and a few words in their header."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import check_format, parse_json, shortened, typed
from spacetime_en._util.tensor_files import Held, read_header, read_tensors
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.loading import check_finite, check_fits
from spacetime_en.training import Progress, State

FORMAT = 1
PARTS = ("weights", "averaged", "optimiser")
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # of Adam, by its own names


@dataclass(frozen=True)
class Belonging:
    """What a checkpoint belongs to.

    Args:
        preset: of the model.
        model: its arguments.
        data: the fingerprint of the task.
        random: the seed and the step, from which all random numbers come.
    """

    preset: str
    model: dict[str, Any]
    data: str
    random: dict[str, int]


@dataclass(frozen=True)
class _Header(Belonging):
    progress: Progress


def write_checkpoint(path: Path, state: State, belonging: Belonging) -> None:
    """Write a checkpoint."""
    tensors = {
        f"{part}/{name}": tensor.contiguous()
        for part in PARTS
        for name, tensor in getattr(state, part).items()
    }
    known = {"progress": dataclasses.asdict(state.progress), **dataclasses.asdict(belonging)}
    text = json.dumps({"format": FORMAT, **known})
    save_file(tensors, path, {"format": "pt", "checkpoint": text})


def read_progress(path: Path, belonging: Belonging) -> Progress:
    """How far the training had come; refuses a checkpoint of another model or other data."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such checkpoint.")
    text = read_header(path).metadata.get("checkpoint")
    if text is None:
        raise InputError(f"{path}: is no checkpoint, its header says of no training.")
    where = f"{path}: its header"
    known = typed(parse_json(text, where), dict[str, Any], where)
    check_format(known.pop("format", FORMAT), FORMAT, where)
    header: _Header = typed(known, _Header, where)
    ours = json.loads(json.dumps([belonging.preset, belonging.model]))
    if [header.preset, header.model] != ours:
        raise InputError(
            f"{path}: is a checkpoint of another model ({shortened(header.preset)}, "
            f"{shortened(header.model, 200)}) than the run's config describes."
        )
    if header.data != belonging.data:
        raise InputError(f"{path}: is a checkpoint of a training on other data.")
    return header.progress


def read_checkpoint(path: Path, belonging: Belonging, model: Forecaster | None = None) -> State:
    """The state in a checkpoint.

    Args:
        path: of the checkpoint.
        belonging: to what it must belong.
        model: in which it must fit, if it is to go on from there.
    """
    state = State(read_progress(path, belonging))
    held = read_header(path).tensors
    for name in held:
        if name.partition("/")[0] not in PARTS:
            raise InputError(f"{path}: holds {shortened(name)}, which is no part of a checkpoint.")
    if model is not None:
        _check_fits(model, held, path)
    for part in PARTS:
        tensors = read_tensors(path, f"{part}/")
        check_finite(tensors, path)
        setattr(state, part, tensors)
    return state


def weights_in(path: Path) -> str:
    """What the names of the weights to forecast with begin with."""
    averaged = any(name.startswith("averaged/") for name in read_header(path).tensors)
    return "averaged/" if averaged else "weights/"


def _check_fits(model: Forecaster, held: Mapping[str, Held], path: Path) -> None:
    """Refuse tensors that are not those of the model and of its optimiser."""
    own: dict[str, dict[str, Held]] = {part: {} for part in PARTS}
    for name, tensor in held.items():
        part, _, rest = name.partition("/")
        own[part][rest] = tensor
    for part in ("weights", "averaged"):
        if own[part] or part == "weights":
            check_fits(model.state_dict(), own[part], path)
    shapes = [tuple(parameter.shape) for parameter in model.parameters()]
    for name, (dtype, shape) in own["optimiser"].items():
        index, _, moment = name.partition("/")
        place = int(index) if index.isascii() and index.isdecimal() and len(index) < 9 else -1
        fits = 0 <= place < len(shapes) and moment in MOMENTS
        wanted = shapes[place] if fits and moment != "step" else ()
        if not fits or shape != wanted or dtype is None or not dtype.is_floating_point:
            raise InputError(
                f"{path}: holds 'optimiser/{name:.60}', which is no moment of this model's weights."
            )
