"""Saving and loading models: safetensors weights with a readable config, and no pickle.

A model is a folder with ``config.json`` and ``model.safetensors``, the layout of huggingface_hub,
or the file ``model.safetensors`` alone, whose header also holds the config and a record of the
training data.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from safetensors.torch import save_file

from spacetime_en._util.errors import InputError, no_such, require
from spacetime_en._util.files import write_atomically
from spacetime_en._util.schema import argument, check_format, parse_json, read_text, typed
from spacetime_en._util.tensor_files import read_tensor_header
from spacetime_en.facts import DataFacts
from spacetime_en.nn.loading import check_finite, load_model

if TYPE_CHECKING:
    from spacetime_en.nn.forecaster import Forecaster

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
MODEL_FORMAT = 1  # of the config
SHIPPED = "pretrained:"  # prefix of the names of the models that come with the package
SHELF = Path(__file__).parents[1] / "weights"
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?<!\.safetensors)")


class Pretrained:
    """``save_pretrained``, ``from_pretrained`` and ``push_to_hub`` for every model."""

    def save_pretrained(self, save_directory: str | os.PathLike[str]) -> Path:
        """Write the model to a folder, or to one file if the name ends in ``.safetensors``.

        Files are written under a temporary name and then renamed, so that an interruption never
        leaves a partial model.

        Returns: the path written.
        """
        model = cast("Forecaster", self)
        target = Path(argument("save_directory", save_directory, str | os.PathLike))
        check_finite(model.state_dict(), "model")
        config = json.dumps(
            {"format": MODEL_FORMAT, "model": type(self).__name__, **model.config}, indent=2
        )
        tensors = {name: t.detach().contiguous() for name, t in model.state_dict().items()}
        metadata = {"format": "pt", "config": config}
        if model.trained_on is not None:
            metadata["trained_on"] = json.dumps(model.trained_on.to_json())
        if target.suffix == ".safetensors":
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target, lambda path: save_file(tensors, path, metadata))
        else:
            target.mkdir(parents=True, exist_ok=True)
            write_atomically(target / WEIGHTS, lambda path: save_file(tensors, path, metadata))
            write_atomically(target / CONFIG, lambda path: path.write_text(config + "\n"))
        return target

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike[str],
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> Self:
        """Load a model from a folder, a ``.safetensors`` file, this package or the Hub.

        Models shipped with this package are named ``pretrained:egnn-nbody``, ``pretrained:charged``
        and so on; those on the Hub, ``owner/name``.

        On ``Forecaster`` it loads a model of any class; on a subclass, only models of that class.

        Args:
            pretrained_model_name_or_path: what to load.
            revision: branch, tag or commit on the Hub.
            token: for private models on the Hub.
            cache_dir: where to store downloads.
            settings: constructor arguments that replace saved ones, such as ``dropout``.
        Returns: the model in eval mode.
        """
        source = argument(
            "pretrained_model_name_or_path", pretrained_model_name_or_path, str | os.PathLike
        )
        hub_options = {"revision": revision, "token": token, "cache_dir": cache_dir}
        config, weights = _find(source, hub_options)
        name = config.pop("model", None)
        classes = {model.__name__: model for model in (cls, *_subclasses(cls))}
        if name not in classes:
            raise InputError(
                f"{weights}: holds a model of class {name!r}, expected "
                f"{' or '.join(sorted(classes)) if len(classes) < 4 else 'one that is imported'}."
            )
        model = load_model(
            lambda: cast("Forecaster", classes[name](**(config | settings))), weights
        )
        model.trained_on = _trained_on(weights)
        return cast("Self", model)

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, token: str | bool | None = None
    ) -> str:
        """Upload the model to the Hugging Face Hub (the extra ``hub``).

        Returns: the URL of the commit.
        """
        hub = require("huggingface_hub", "hub")
        hub.create_repo(repo_id, private=private, token=token, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return str(hub.upload_folder(repo_id=repo_id, folder_path=folder, token=token))


def shipped(source: str | os.PathLike[str]) -> Path:
    """The folder of the model ``pretrained:NAME``; any other path unchanged."""
    name = str(source)
    if not name.startswith(SHIPPED):
        return Path(source)
    name = name.removeprefix(SHIPPED)
    names = sorted(path.name for path in SHELF.iterdir() if path.is_dir())
    if name not in names:
        raise no_such("pretrained model", name, names)
    return SHELF / name


def _subclasses(cls: type[Any]) -> list[type[Any]]:
    return [s for child in cls.__subclasses__() for s in (child, *_subclasses(child))]


def _find(
    source: str | os.PathLike[str], hub_options: dict[str, Any]
) -> tuple[dict[str, Any], Path]:
    """The config, and the path of the weights."""
    path = shipped(source)
    path = path / "model" if path.parent == SHELF else path
    if isinstance(source, str) and not path.exists() and HUB_NAME.fullmatch(source):
        hub = require("huggingface_hub", "hub")
        try:
            path = Path(
                hub.snapshot_download(source, allow_patterns=[CONFIG, WEIGHTS], **hub_options)
            )
        except Exception as error:  # any error of the network or the Hub
            raise InputError(
                f"{source}: there is no such folder or file here, and the Hub did not give a model "
                f"of that name ({type(error).__name__})."
            ) from error
    if path.is_dir():
        missing = [name for name in (CONFIG, WEIGHTS) if not (path / name).is_file()]
        if missing:
            raise InputError(f"{path}: expected {CONFIG} and {WEIGHTS}, {missing[0]} is missing.")
        weights = path / WEIGHTS
        text = read_text(path / CONFIG)
        embedded = read_tensor_header(weights).metadata.get("config")
        if embedded is not None and _parse(path, text) != _parse(path, embedded):
            raise InputError(
                f"{path}: {CONFIG} is not the config that {WEIGHTS} was saved with: they belong to "
                f"different models; save again, or load the file {WEIGHTS} alone."
            )
    elif path.is_file():
        text, weights = read_tensor_header(path).metadata.get("config", ""), path
        if not text:
            raise InputError(f"{path}: its header has no config; load the folder it came from.")
    else:
        raise InputError(f"{path}: expected a model folder or file, found nothing there.")
    return _parse(path, text), weights


def _parse(path: Path, text: str) -> dict[str, Any]:
    config = parse_json(text, f"{path}: its config")
    if not isinstance(config, dict) or not isinstance(config.get("model"), str):
        raise InputError(f"{path}: its config is no JSON object that names a model.")
    check_format(config.pop("format", MODEL_FORMAT), MODEL_FORMAT, f"{path}: its config")
    return config


def _trained_on(path: Path) -> DataFacts | None:
    """The data that a model was trained on, if the file records it."""
    text, where = read_tensor_header(path).metadata.get("trained_on"), f"{path}: trained_on"
    return None if text is None else typed(parse_json(text, where), DataFacts, where)
