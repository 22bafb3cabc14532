"""Checkpoints: the state of a training as named tensors, with JSON in the file's header."""

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
from spacetime_en._util.tensor_files import TensorSpec, read_tensor_header, read_tensors
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.loading import check_finite, check_fits
from spacetime_en.training.state import TrainingProgress, TrainingState

CHECKPOINT_FORMAT = 1
PARTS = ("weights", "averaged", "optimiser")
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # Adam's names


@dataclass(frozen=True)
class CheckpointOwner:
    """The training that a checkpoint belongs to.

    Args:
        preset: the preset of the model.
        model: the model's arguments.
        data: the fingerprint of the task.
        random: the seed and the step, on which all random numbers depend.
        facts: of the data and of how they are cut, by name; forecasts depend on them. Checkpoints
            written by earlier versions have none.
    """

    preset: str
    model: dict[str, Any]
    data: str
    random: dict[str, int]
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Header(CheckpointOwner):
    progress: TrainingProgress


def write_checkpoint(path: Path, state: TrainingState, owner: CheckpointOwner) -> None:
    """Write a checkpoint."""
    tensors = {
        f"{part}/{name}": tensor.contiguous()
        for part in PARTS
        for name, tensor in getattr(state, part).items()
    }
    entries = {"progress": dataclasses.asdict(state.progress), **dataclasses.asdict(owner)}
    text = json.dumps({"format": CHECKPOINT_FORMAT, **entries})
    save_file(tensors, path, {"format": "pt", "checkpoint": text})


def read_progress(path: Path, owner: CheckpointOwner) -> TrainingProgress:
    """Read the progress in a checkpoint; reject one of another model or of other data."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such checkpoint.")
    text = read_tensor_header(path).metadata.get("checkpoint")
    if text is None:
        raise InputError(f"{path}: is no checkpoint, its header says of no training.")
    where = f"{path}: its header"
    entries = typed(parse_json(text, where), dict[str, Any], where)
    check_format(entries.pop("format", CHECKPOINT_FORMAT), CHECKPOINT_FORMAT, where)
    header: _Header = typed(entries, _Header, where)
    ours = json.loads(json.dumps([owner.preset, owner.model]))
    if [header.preset, header.model] != ours:
        raise InputError(
            f"{path}: is a checkpoint of another model ({shortened(header.preset)}, "
            f"{shortened(header.model, 200)}) than the run's config describes."
        )
    if header.data != owner.data:
        raise InputError(f"{path}: is a checkpoint of a training on other data.")
    for name, there in header.facts.items():
        here = owner.facts.get(name)
        if _ordered(there) != _ordered(here):
            raise InputError(
                f"{path}: was trained with {shortened(name)} {shortened(there)}, and the run's "
                f"files say {shortened(here)}; put the files back as they were."
            )
    return header.progress


def _ordered(value: Any) -> Any:
    """A value for comparison, sensitive to the order of named entries: attributes are ordered."""
    return json.loads(json.dumps(value), object_pairs_hook=list)


def read_checkpoint(
    path: Path, owner: CheckpointOwner, model: Forecaster | None = None
) -> TrainingState:
    """Read the state in a checkpoint.

    Args:
        path: the checkpoint.
        owner: the training that it must belong to.
        model: the model that it must fit, if training is to continue from it.
    """
    state = TrainingState(read_progress(path, owner))
    held = read_tensor_header(path).tensors
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
    """The prefix of the weights to forecast with: the averaged ones, if any."""
    averaged = any(name.startswith("averaged/") for name in read_tensor_header(path).tensors)
    return "averaged/" if averaged else "weights/"


def _check_fits(model: Forecaster, held: Mapping[str, TensorSpec], path: Path) -> None:
    """Reject tensors that do not fit the model and its optimiser."""
    parts: dict[str, dict[str, TensorSpec]] = {part: {} for part in PARTS}
    for name, tensor in held.items():
        part, _, rest = name.partition("/")
        parts[part][rest] = tensor
    for part in ("weights", "averaged"):
        if parts[part] or part == "weights":
            check_fits(model.state_dict(), parts[part], path)
    shapes = [tuple(parameter.shape) for parameter in model.parameters()]
    for name, (dtype, shape) in parts["optimiser"].items():
        index, _, moment = name.partition("/")
        place = int(index) if index.isascii() and index.isdecimal() and len(index) < 9 else -1
        fits = 0 <= place < len(shapes) and moment in MOMENTS
        wanted = shapes[place] if fits and moment != "step" else ()
        if not fits or shape != wanted or dtype is None or not dtype.is_floating_point:
            raise InputError(
                f"{path}: holds 'optimiser/{name:.60}', which is no moment of this model's weights."
            )
