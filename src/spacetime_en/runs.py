"""A run: a training in a folder, from its config to its checkpoints.

::

    runs/x/config.yaml                     every setting
    runs/x/run.json                        versions, machine, fingerprint and shape of the data
    runs/x/checkpoints/last.safetensors    where to go on (and previous.safetensors before it)
    runs/x/checkpoints/best.safetensors    the lowest validation error
    runs/x/model/                          the best model, for ``Forecaster.from_pretrained``
    runs/x/logs/                           TensorBoard and CSV
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from spacetime_en.config import Config
from spacetime_en.data import Task
from spacetime_en.errors import InputError, Interrupted
from spacetime_en.files import replace_whole
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.presets import find_preset
from spacetime_en.training import DivergenceError, Progress, State, fit

CONFIG, FACTS = "config.yaml", "run.json"
MAY_CHANGE = ("epochs", "steps", "max_time", "save_every", "accelerator", "devices", "num_nodes")
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """A training in a folder.

    Args:
        folder: where.
        config: every setting.
        facts: what else is known: versions, machine, the data.
    """

    folder: Path
    config: Config
    facts: dict[str, Any]

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Run:
        """A run that exists."""
        folder = Path(folder)
        if not (folder / CONFIG).is_file() or not (folder / FACTS).is_file():
            raise InputError(f"{folder}: is no run (expected {CONFIG} and {FACTS} inside).")
        config = Config.from_yaml((folder / CONFIG).read_text(), str(folder / CONFIG))
        try:
            facts = json.loads((folder / FACTS).read_text())
        except json.JSONDecodeError as error:
            raise InputError(f"{folder / FACTS}: is not valid JSON ({error}).") from None
        return cls(folder, config, facts)

    def write(self) -> None:
        """Write the config and the facts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        facts = json.dumps(self.facts, indent=2) + "\n"
        replace_whole(self.folder / FACTS, lambda path: path.write_text(facts))
        replace_whole(self.folder / CONFIG, lambda path: path.write_text(self.config.to_yaml()))

    def unlike(self, task: Task) -> list[str]:
        """In what a task differs from the one trained on, so that forecasts mean something else."""
        ours, theirs = self.facts["data"], data_facts(task)
        words = {"horizon_time": "a horizon of", "frame_time": "a time between frames of"}
        return [
            f"the model was trained for {what} {ours[key]:g}, this task has {theirs[key]:g}."
            for key, what in words.items()
            if None not in (ours[key], theirs[key]) and not math.isclose(ours[key], theirs[key])
        ]

    # --- checkpoints ------------------------------------------------------------------------------

    def checkpoint(self, name: str) -> Path:
        """The path of a checkpoint: ``last``, ``previous`` or ``best``."""
        return self.folder / "checkpoints" / f"{name}.safetensors"

    def save(self, state: State, best: bool) -> None:
        """Write the state as the last checkpoint, and as the best."""
        last = self.checkpoint("last")
        last.parent.mkdir(parents=True, exist_ok=True)
        tensors = {
            f"{part}/{name}": tensor.contiguous()
            for part in ("weights", "averaged", "optimiser")
            for name, tensor in getattr(state, part).items()
        }
        known = {
            "progress": dataclasses.asdict(state.progress),
            "preset": self.config.preset,
            "model": dict(self.config.model),
            "data": self.facts["data"]["fingerprint"],
            "random": {"seed": self.config.training.seed, "step": state.progress.step},
        }
        metadata = {"format": "pt", "checkpoint": json.dumps(known)}
        if best:
            replace_whole(self.checkpoint("best"), lambda path: save_file(tensors, path, metadata))

        def write(path: Path) -> None:
            save_file(tensors, path, metadata)
            if last.exists():  # the new one is whole: only now may the old one move
                os.replace(last, self.checkpoint("previous"))

        replace_whole(last, write)

    def load(self, name: str) -> State:
        """The state in a checkpoint, checked to be of this run's model and data."""
        path = self.checkpoint(name)
        if not path.is_file():
            raise InputError(f"{path}: there is no such checkpoint.")
        try:
            with safe_open(path, framework="pt") as file:
                known = json.loads((file.metadata() or {})["checkpoint"])
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, RuntimeError, KeyError, ValueError) as error:
            raise InputError(f"{path}: is truncated or no checkpoint ({error}).") from None
        own = (self.config.preset, json.loads(json.dumps(dict(self.config.model))))
        if (known["preset"], known["model"]) != own:
            raise InputError(
                f"{path}: is a checkpoint of another model ({known['preset']}, {known['model']}) "
                f"than {self.folder / CONFIG} describes."
            )
        state = State(Progress(**known["progress"]))
        for key, tensor in tensors.items():
            part, _, name = key.partition("/")
            getattr(state, part)[name] = tensor
        return state

    def newest(self, tell: Tell) -> State | None:
        """Where to go on: the last checkpoint, or the one before if that cannot be read."""
        for name in ("last", "previous"):
            if not self.checkpoint(name).exists():
                continue
            try:
                return self.load(name)
            except InputError as error:
                tell(f"{error} Going back to the checkpoint before it.")
        return None

    def model(self) -> Forecaster:
        """The best model of the run so far, ready to forecast."""
        if not self.checkpoint("best").is_file():
            raise InputError(
                f"{self.folder}: has no checkpoint yet; let it train up to its first validation."
            )
        state = self.load("best")
        model = find_preset(self.config.preset).model(**self.config.model)
        missing = model.state_dict().keys() ^ state.model.keys()
        if missing:
            raise InputError(
                f"{self.checkpoint('best')}: is a checkpoint of another model: {min(missing)} is "
                "in only one of them."
            )
        model.load_state_dict(state.model)
        return model.eval()


def train(
    config: Config,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    loggers: Sequence[str] = ("tensorboard", "csv"),
    display: bool = True,
    tell: Tell = lambda text: print(text, file=sys.stderr),
) -> Run:
    """Train as `config` says, in the folder `out`.

    Args:
        config: what and how.
        out: the folder of the run; must not be a run already, unless `resume`.
        resume: go on with the run in `out` if there is one. The budget may be another one.
        loggers: ``tensorboard``, ``csv``, or import paths of Lightning's other loggers.
        display: show how it goes.
        tell: called with what the user should know.
    """
    folder = Path(out)
    first = is_first_process()
    tell = tell if first else lambda text: None
    # (A run without a checkpoint has nothing to lose.)
    exists = any((folder / "checkpoints").glob("*.safetensors"))
    if exists and first and not resume:
        raise InputError(
            f"{folder}: is a run already; resume it (--resume), choose another folder, or "
            "delete it."
        )
    task = config.load_task()
    torch.manual_seed(config.training.seed)
    model = config.build_model(task)
    resolved = config.resolved(model)
    run = Run(folder, resolved, _facts(task))
    state = None
    if exists and resume:
        run = _continued(Run.open(folder), run)
        state = run.newest(tell)
        if state is not None:
            tell(f"{folder}: goes on at step {state.progress.step}.")
    if first:
        run.write()
    if task.problems:
        tell(f"warning: {task.label}")

    def keep(state: State, best: bool) -> None:
        try:
            run.save(state, best)
        except (OSError, SafetensorError) as error:
            tell(
                f"warning: the checkpoint of step {state.progress.step} could not be written "
                f"({error}); the one before it stays, and training goes on."
            )

    try:
        fit(
            model,
            task,
            config.training,
            state=state,
            keep=keep,
            loggers=_loggers(loggers, folder) if first else (),
            display=display,
        )
    except DivergenceError as error:
        if first:
            path = folder / "diverged.json"
            rows = json.dumps({"message": str(error), "training_windows": error.rows})
            replace_whole(path, lambda path: path.write_text(rows))
            raise InputError(
                f"{error} The windows are listed in {path}; the last good checkpoint stays."
            ) from None
        raise
    except Interrupted:
        raise Interrupted(f"stopped; go on with: spacetime train --out {folder} --resume") from None
    if first:
        run.model().save_pretrained(folder / "model")
    return run


def is_first_process() -> bool:
    """Whether this is the process that writes and speaks, of those that train together."""
    return getattr(rank_zero_only, "rank", 0) == 0


def _continued(old: Run, new: Run) -> Run:
    """The run with a new budget; anything else must be as it was."""
    if old.facts["data"]["fingerprint"] != new.facts["data"]["fingerprint"]:
        raise InputError(f"{old.folder}: its data have changed since it began; start a new run.")
    ours, theirs = (
        {f"model.{k}": v for k, v in run.config.model.items()}
        | {f"task.{k}": v for k, v in run.config.task.items()}
        | {f"training.{k}": v for k, v in dataclasses.asdict(run.config.training).items()}
        | {"preset": run.config.preset}
        for run in (new, old)
    )
    for key in sorted(ours.keys() | theirs.keys()):
        here, there = (json.loads(json.dumps(s.get(key), default=str)) for s in (ours, theirs))
        if here != there and key.removeprefix("training.") not in MAY_CHANGE:
            raise InputError(
                f"{old.folder}: began with {key} = {there}, now it is {here}; only the budget may "
                "change, start a new run for anything else."
            )
    return dataclasses.replace(old, config=new.config)


def _facts(task: Task) -> dict[str, Any]:
    return {
        "versions": {
            "python": platform.python_version(),
            **{
                name: import_module(name).__version__
                for name in ("spacetime_en", "torch", "lightning")
            },
        },
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        },
        "command": sys.argv[1:],
        "data": data_facts(task),
    }


def data_facts(task: Task) -> dict[str, Any]:
    """What a model that was trained on a task has seen."""
    graph, _ = task.train[:1]
    L, N, n = graph.x.shape[1:]
    times = task.train.trajectories.times[task.train.frames[0]]  # of a window and its target
    return {
        "label": task.label,
        "fingerprint": task.fingerprint,
        "windows": {name: len(windows) for name, windows in task.splits.items()},
        "frames": L,
        "nodes": N,
        "dims": n,
        "features": graph.feature_width,
        "edge_features": graph.edge_width,
        "frame_time": float(times[1] - times[0]) if L > 1 else None,
        "horizon_time": float(times[-1] - times[-2]),
    }


def _loggers(names: Sequence[str], folder: Path) -> list[Logger]:
    """One folder of logs for each sitting: loggers do not append to what an earlier one wrote."""
    logs = folder / "logs"
    sitting = 1 + len([p for p in logs.glob("*") if p.is_dir()])
    version = f"sitting-{sitting}"
    made: list[Logger] = []
    for name in names:
        if name == "tensorboard":
            made.append(TensorBoardLogger(folder, name="logs", version=version))
        elif name == "csv":
            made.append(CSVLogger(folder, name="logs", version=version))
        else:
            module, _, attribute = name.rpartition(".")
            try:
                made.append(getattr(import_module(module), attribute)(save_dir=folder))
            except (ImportError, AttributeError, ValueError) as error:
                raise InputError(f"loggers: {name} cannot be imported ({error}).") from None
    return made
