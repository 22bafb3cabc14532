"""Commands on runs: ``spacetime evaluate``, ``predict``, ``export`` and ``animate``."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from tyro.conf import Positional

from spacetime_en._util.errors import InputError
from spacetime_en._util.files import inside, refuse_existing
from spacetime_en._util.progress import progress_bar
from spacetime_en._util.schema import PositiveFloat, PositiveInt
from spacetime_en._util.terminal import Terminal
from spacetime_en.cli.selection import task_field, task_in, with_options
from spacetime_en.nn.pretrained import shipped
from spacetime_en.runs.config import source_of, without_source
from spacetime_en.runs.run import CONFIG_FILE, Run


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure a trained model's errors against trivial forecasts.

    Position and velocity MSE (per coordinate), for paths also ADE, FDE and the error against time,
    all compared with ridge regression, too; equivariance error; the drift of momenta and of
    energies that are known, learned or found. The report and the errors of every window are also
    written to the folder `evaluation` of the run.

    Args:
        run: folder of the run, or pretrained:NAME.
        task: name of a task; by default the one that the model was trained on.
        data: folder of a data set to evaluate on instead.
        split: windows to evaluate on.
        json: print a JSON object instead of tables.
        plot: picture of the error against time to write, such as error.png; for paths.
        trust: allow the run's config to have its class imported and its data read.
    """

    opened: ClassVar[Run | None] = None
    source: ClassVar[Mapping[str, Any]] = {}
    trusted: ClassVar[bool] = True

    run: Positional[Path]
    task: str | None = None
    data: Path | None = None
    split: Literal["train", "val", "test"] = "test"
    json: bool = False
    plot: Path | None = None
    trust: bool = False

    @classmethod
    def with_options_for(cls, arguments: Sequence[str]) -> type[Self]:
        """The command with the options of the task, by default the run's."""
        run, source, trusted = _run_in(arguments), task_in(arguments), True
        settings: dict[str, Any] = {}
        if run is not None:
            trained_on = run.config.task
            if not source:
                source, trusted = source_of(trained_on), run.config.trusted
            if source == source_of(trained_on):
                settings = without_source(trained_on)
            elif "data" in source:  # windows like those that the model was trained on
                if "data" in trained_on:
                    settings = without_source(trained_on) | {"counts": None}
                settings["length"] = run.data.frames
        fields = [task_field(source, settings)] if source else []
        return with_options(cls, fields, opened=run, source=source, trusted=trusted)

    def __call__(self) -> None:
        from spacetime_en.evaluation import evaluate
        from spacetime_en.report.tables.evaluation import (
            errors_by_model,
            print_evaluation,
            write_evaluation,
        )

        if self.plot is not None:
            refuse_existing(self.plot)
        run = self.opened
        if run is None or run.folder != shipped(self.run):
            run = Run.open(self.run, trust=self.trust)
        model = run.model().to(_device())
        settings = getattr(self, "task_settings", None)
        source = {**self.source, **(dataclasses.asdict(settings) if settings else {})}
        config = dataclasses.replace(run.config, task=source, trusted=self.trusted)
        task = run.check_data(source, config.load_task())
        with progress_bar("windows", len(task.splits[self.split])) as advance:
            evaluation = evaluate(
                model,
                task,
                split=self.split,
                batch_size=run.config.training.batch,
                progress=advance,
            )
        evaluation.report.update(run=str(self.run), preset=run.config.preset)
        evaluation.report["warnings"] += run.seen_in_training(task, self.split)
        if self.json:
            print(json.dumps(evaluation.report, indent=2))
        else:
            print_evaluation(evaluation.report, Terminal())
        folder = inside(run.outputs, run.outputs / "evaluation")
        try:
            name = f"{task.name}-{self.split}-{task.fingerprint[:8]}"
            report, table = write_evaluation(evaluation, folder, name)
        except (OSError, InputError) as error:
            print(f"warning: the report was not written ({error}).", file=sys.stderr)
        else:
            print(
                f"written: {report}\nerrors of every window: {table}",
                file=sys.stderr if self.json else sys.stdout,
            )
        if self.plot is not None:
            from spacetime_en.report.plots import plot_error_against_time  # takes a second

            path = plot_error_against_time(errors_by_model(evaluation.report), self.plot)
            print(f"picture: {path}", file=sys.stderr if self.json else sys.stdout)


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Forecast new data with a trained model.

    For every window of frames with the time spacing of the training data: the state at the target
    times of the training, or at others.

    Args:
        run: folder of the run, or pretrained:NAME.
        input: file or folder in any format that `spacetime data import` reads.
        out: file to write: a table (.csv, .tsv, .parquet), or trajectories (.npz, .h5md, .extxyz,
            .traj); a name without an ending: a data set.
        last: forecast only from the newest window of each trajectory.
        steps: forecast a path of this many frame steps; models with a single horizon are iterated,
            if it is one frame step.
        times: target times after the last frame, in the unit of the data, for models that read
            the horizon.
        batch_size: windows per batch; by default chosen for speed.
        topology: for MDAnalysis, the topology file, which names the atoms.
        select: for MDAnalysis, the selection of atoms, such as "name CA".
        time_step: time between frames in units of the training data, for files that do not give it.
        trust: allow the run's config to have its class imported.
    """

    run: Positional[Path]
    input: Positional[Path]
    out: Path
    last: bool = False
    steps: PositiveInt | None = None
    times: tuple[PositiveFloat, ...] = ()
    batch_size: int | None = None
    topology: Path | None = None
    select: str | None = None
    time_step: float | None = None
    trust: bool = False

    def __call__(self) -> None:
        from spacetime_en.data.readers import read
        from spacetime_en.runs.prediction import count_windows, predict, target_times

        run = Run.open(self.run, trust=self.trust)
        options = {key: getattr(self, key) for key in ("topology", "select", "time_step")}
        trajectories = read(self.input, **options)
        data, model = run.data, run.model()
        windows: dict[str, Any] = {
            "length": data.frames,
            "frame_time": data.frame_time,
            "last": self.last,
        }
        with progress_bar("windows", count_windows(trajectories, **windows)) as advance:
            path = predict(
                model.to(_device()),
                trajectories,
                self.out,
                **windows,
                horizon_times=target_times(data, self.steps, self.times),
                radius=run.config.task.get("radius"),
                k=run.config.task.get("k"),
                batch_size=self.batch_size,
                progress=advance,
            )
        print(path)


@dataclass(frozen=True, kw_only=True)
class Export:
    """Export a trained model to ONNX or torch.export.

    The program runs without this package.

    Args:
        run: folder of the run, or pretrained:NAME.
        format: onnx (needs the extra `onnx`) or torch-export.
        out: file to write; by default model.onnx or model.pt2 in the folder of the run.
        data: folder of the run's data, if it has moved.
        trust: allow the run's config to have its class imported and its data read.
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
    """Animate forecasts beside the truth, or draw them.

    As GIF, MP4 or HTML, or as a still picture for papers: PNG, SVG or PDF.

    Args:
        runs: folders of one or more runs on the same task.
        out: file to write: .gif, .mp4 (needs ffmpeg), .html (a page to rotate, zoom and play), or
            .png, .svg, .pdf for a picture of one window.
        window: number of a test window, from 0; an animation of a recording continues from there,
            or shows the whole trajectory around it.
        frames: largest number of frames.
        fps: frames per second; by default 5 to 20.
        data: folder of the runs' data, if it has moved.
        trust: allow the runs' configs to have their classes imported and their data read.
    """

    runs: Positional[tuple[Path, ...]]
    out: Path
    window: int = 0
    frames: int = 120
    fps: int | None = None
    data: Path | None = None
    trust: bool = False

    def __call__(self) -> None:
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
        from spacetime_en.report.animation import STILLS, animate, make_scene, window_scene
        from spacetime_en.report.drawing import plot_scene  # imports matplotlib

        task = first.load_task(self.data)
        if self.out.suffix.lower() in STILLS:
            print(plot_scene(window_scene(models, task, self.window), self.out))
            return
        scene = make_scene(models, task, self.window, self.frames)
        with progress_bar("frames", len(scene.frames)) as advance:
            print(animate(scene, self.out, self.fps, advance))


def _run_in(arguments: Sequence[str]) -> Run | None:
    """The run named among the arguments."""
    for word in arguments:
        if not word.startswith("-") and (shipped(word) / CONFIG_FILE).is_file():
            return Run.open(word, trust="--trust" in arguments)
    return None


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
