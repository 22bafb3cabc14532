"""What is done with a run: ``spacetime evaluate``, ``predict``, ``export`` and ``animate``."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
import tyro
from tyro.conf import Positional

from spacetime_en._util.errors import InputError
from spacetime_en._util.files import inside, refuse_existing
from spacetime_en._util.progress import progress_bar
from spacetime_en._util.terminal import Terminal
from spacetime_en.cli.selection import Selection, task_field
from spacetime_en.nn.pretrained import shipped
from spacetime_en.runs.config import settings_of, source_of, without_source
from spacetime_en.runs.run import Run


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Errors of a run's best model beside the trivial forecasts', its symmetry, energy, momentum.

    The report and the errors of every window are also written to the run's folder `evaluation`.

    Args:
        run: folder of the run, or pretrained:NAME.
        task: the name of a task; by default the run's own.
        data: or the folder of a data set.
        split: train, val or test.
        json: print one object instead of tables.
        trust: import the class and read the data that the run's config names.
    """

    selection: ClassVar[Selection]

    run: Positional[Path]
    task: str | None = None
    data: Path | None = None
    split: Literal["train", "val", "test"] = "test"
    json: bool = False
    trust: bool = False

    def __call__(self) -> None:
        from spacetime_en.evaluation import evaluate
        from spacetime_en.report.tables.evaluation import show, write

        run = Run.open(self.run, trust=self.trust)
        model = run.model().to(_device())
        settings = getattr(self, "task_settings", None)
        given = {**self.selection.task, **(dataclasses.asdict(settings) if settings else {})}
        source = given or run.config.task
        config = dataclasses.replace(run.config, task=source, trusted=self.selection.trusted)
        task = run.check_data(source, config.load_task())
        with progress_bar("windows", len(task.splits[self.split])) as advance:
            found = evaluate(
                model,
                task,
                split=self.split,
                batch_size=run.config.training.batch_size,
                progress=advance,
            )
        found.report.update(run=str(self.run), preset=run.config.preset)
        found.report["warnings"] += run.seen_in_training(task, self.split)
        if self.json:
            print(json.dumps(found.report, indent=2))
        else:
            show(found.report, Terminal())
        folder = inside(run.outputs, run.outputs / "evaluation")
        try:
            name = f"{task.name}-{self.split}-{task.fingerprint[:8]}"
            report, table = write(found, folder, name)
        except (OSError, InputError) as error:
            print(f"warning: the report was not written ({error}).", file=sys.stderr)
        else:
            written = sys.stderr if self.json else sys.stdout
            print(f"written: {report}\nerrors of every window: {table}", file=written)


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Forecast new data with a run's best model.

    For every window of frames that the file has, spaced in time as those that the model was
    trained on, the state one horizon after the window's last frame.

    Args:
        run: folder of the run, or pretrained:NAME.
        input: any file or folder that the readers know (see `spacetime data import --help`).
        out: file to write: .npz, .h5md, .extxyz, ..., or without an ending a folder data set.
        last: only from the newest window of each trajectory.
        batch_size: windows at a time; by default as many as are fast.
        topology: for MDAnalysis, the file that names the atoms.
        select: for MDAnalysis, which atoms.
        time_step: between frames, for files that do not tell it.
        trust: import the class that the run's config names.
    """

    run: Positional[Path]
    input: Positional[Path]
    out: Path
    last: bool = False
    batch_size: int | None = None
    topology: Path | None = None
    select: str | None = None
    time_step: float | None = None
    trust: bool = False

    def __call__(self) -> None:
        from spacetime_en.data.readers import read
        from spacetime_en.runs.prediction import count_windows, predict

        run = Run.open(self.run, trust=self.trust)
        given = {key: getattr(self, key) for key in ("topology", "select", "time_step")}
        found = read(self.input, **{k: v for k, v in given.items() if v is not None})
        data = run.data
        windows: dict[str, Any] = {
            "length": data.frames,
            "frame_time": data.frame_time,
            "last": self.last,
        }
        with progress_bar("windows", count_windows(found, **windows)) as advance:
            path = predict(
                run.model().to(_device()),
                found,
                self.out,
                **windows,
                horizon_time=data.horizon_time,
                radius=run.config.task.get("radius"),
                k=run.config.task.get("k"),
                batch_size=self.batch_size,
                progress=advance,
            )
        print(path)


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a run's best model as a program that needs nothing of this package.

    Args:
        run: folder of the run, or pretrained:NAME.
        format: onnx, or torch-export.
        out: file to write; by default model.onnx or model.pt2 in the run.
        data: the folder of the run's data, if they are not where they were.
        trust: import the class and read the data that the run's config names.
    """

    run: Positional[Path]
    format: Literal["onnx", "torch-export"] = "onnx"
    out: Path | None = None
    data: Path | None = None
    trust: bool = False

    def __call__(self) -> None:
        from spacetime_en.runs.export import export

        run = Run.open(self.run, trust=self.trust)
        ending = {"onnx": "onnx", "torch-export": "pt2"}[self.format]
        out = self.out or run.outputs / f"model.{ending}"
        refuse_existing(out)
        example, _ = run.load_task(self.data).train[:2]
        print(export(run.model(), example, out, self.format))


@dataclass(frozen=True, kw_only=True)
class Animate:
    """Show forecasts in motion: the past, the truth, and what the models of runs say.

    Args:
        runs: folders of one or more runs on the same task.
        out: file to write: .gif, .mp4 (needs ffmpeg), or .html, a page to turn and play.
        window: the number of a test window; of a recording, the one whose run is shown.
        frames: at most so many.
        fps: frames a second.
        data: the folder of the runs' data, if they are not where they were.
        trust: import the classes and read the data that the runs' configs name.
    """

    runs: Positional[tuple[Path, ...]]
    out: Path
    window: int = 0
    frames: int = 120
    fps: int = 20
    data: Path | None = None
    trust: bool = False

    def __call__(self) -> None:
        from spacetime_en.report.animation import animate, make_scene

        refuse_existing(self.out)
        runs = {str(folder): Run.open(folder, trust=self.trust) for folder in self.runs}
        if not runs:
            raise InputError("runs: which? Name one or more folders of runs.")
        models = {}
        for folder, run in runs.items():
            preset = run.config.preset
            models[folder if preset in models else preset] = run.model().to(_device())
        first, *others = runs.values()
        for folder, run in zip(list(runs)[1:], others, strict=True):
            if run.data.fingerprint != first.data.fingerprint:
                raise InputError(f"{folder}: was trained on another task than {self.runs[0]}.")
        scene = make_scene(models, first.load_task(self.data), self.window, self.frames)
        with progress_bar("frames", len(scene.steps)) as advance:
            print(animate(scene, self.out, self.fps, advance))


def _run_among(arguments: Sequence[str]) -> tuple[Path | None, bool]:
    """The run, wherever it stands among the options, and whether it is trusted."""
    words = [a for a in arguments if a not in ("-h", "--help")]
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            parsed, _ = tyro.cli(Evaluate, args=words, return_unknown_args=True, add_help=False)
    except SystemExit:
        return None, False
    return parsed.run, parsed.trust


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def commands(arguments: Sequence[str]) -> dict[str, Any]:
    """The commands, `evaluate` with the options of the task that `arguments` choose."""
    selection, fields = Selection(), []
    if list(arguments[:1]) == ["evaluate"]:
        selection = Selection.from_argv(arguments[1:], positional=False)
        folder, trust = _run_among(arguments[1:])
        task: Any = selection.task
        settings: dict[str, Any] = {}
        if folder is not None and shipped(folder).is_dir():
            # By default the run's own task, any of whose settings may be replaced.
            run = Run.open(folder, trust=trust)
            own = run.config.task
            if not task:
                selection = dataclasses.replace(
                    selection, task=source_of(own), trusted=run.config.trusted
                )
            task = selection.task
            if task == source_of(own):
                settings = without_source(own)
            elif "data" in task:  # windows as the model knows them
                settings = without_source(own) | {"counts": None} if "data" in own else {}
                settings["length"] = run.data.frames
        if task:
            fields = [task_field(settings_of("set", task)["task"], settings)]
    evaluate = dataclasses.make_dataclass(
        "Evaluate",
        fields,
        bases=(Evaluate,),
        namespace={"selection": selection, "__doc__": Evaluate.__doc__},
        frozen=True,
        kw_only=True,
    )
    return {"evaluate": evaluate, "predict": Predict, "export": Export, "animate": Animate}
