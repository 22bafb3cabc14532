"""The commands: parses and calls, nothing else.

Every command is a plain function; its options are the function's own arguments.
"""

import importlib
import json as json_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
import tyro
from tyro.conf import Positional

from spacetime_en._util.errors import InputError, no_such
from spacetime_en._util.files import refuse_existing
from spacetime_en._util.progress import progress_bar
from spacetime_en._util.terminal import Terminal
from spacetime_en.report.plots import plot_trajectories

if TYPE_CHECKING:
    from spacetime_en.data import Task


def models(nodes: tuple[int, ...] = (5, 20, 30), json: bool = False) -> None:
    """List the presets with their parameter counts and symmetries.

    Args:
        nodes: numbers of nodes N to build each preset for.
        json: print a list of objects instead of a table.
    """
    from spacetime_en.report.tables.models import describe, show

    if not nodes:
        raise InputError("nodes: expected one or more numbers of nodes, found none.")
    rows = describe(nodes)
    if json:
        print(json_module.dumps(rows, indent=2))
    else:
        show(rows, Terminal())


def simulate(
    system: Positional[str],
    out: Path,
    num: int = 2000,
    nodes: int = 5,
    dims: int = 3,
    steps: int | None = None,
    save: tuple[int, ...] | None = None,
    seed: int = 0,
    scheme: str = "kick-drift",
    shard: str | None = None,
    engine: str = "local",
) -> None:
    """Simulate trajectories into a folder; run it again to go on after an interruption.

    Args:
        system: charged, gravity or springs.
        out: folder of the data set.
        num: number of trajectories.
        nodes: number of nodes.
        dims: 2 or 3.
        steps: how far; without steps and save, what the paper's task needs is made.
        save: numbers of steps at which to keep the state.
        seed: one number for everything.
        scheme: kick-drift (the paper's), verlet or adaptive.
        shard: i/n makes only the i-th of n parts, for a cluster.
        engine: local, or ray.
    """
    from spacetime_en.data import simulate

    part = None
    if shard is not None:
        i, slash, n = shard.partition("/")
        if not (slash and i.isdigit() and n.isdigit()):
            raise InputError(f"shard: expected i/n, such as 0/4, found {shard!r}.")
        part = (int(i), int(n))
    total = num if part is None else num // max(1, part[1])
    with progress_bar("trajectories", total) as advance:
        made = simulate(
            system,
            num,
            nodes=nodes,
            dims=dims,
            steps=steps,
            save=save,
            seed=seed,
            scheme=scheme,
            shard=part,
            out=out,
            engine=engine,
            progress=advance,
        )
    print(f"{out}: {made if len(made) else f'shard {shard} written'}")


def data_info(name: Positional[str], picture: Path | None = None, json: bool = False) -> None:
    """Describe a task or a data set: shapes, splits, ranges, drift, and what is easy to beat.

    Args:
        name: of a task, or the folder of a data set.
        picture: file for a picture of a few trajectories, such as some.png.
        json: print one object instead of tables.
    """
    from spacetime_en.report.tables.task import describe, show

    if picture is not None:
        refuse_existing(picture)
    task = _task(name)
    description = describe(task)
    if picture is not None:
        description["picture"] = str(plot_trajectories(task, picture))
    if json:
        print(json_module.dumps(description, indent=2))
    else:
        show(description, Terminal())


def _task(name: str) -> "Task":
    from spacetime_en.data import TASKS, Task, Trajectories, load_task

    if name in TASKS or not Path(name).exists():
        return load_task(name)
    return Task.from_trajectories(Trajectories.open(name, verify=True), name=name)


def data_import(
    file: Positional[Path],
    out: Path,
    topology: Path | None = None,
    select: str | None = None,
    time_step: float | None = None,
) -> None:
    """Turn a file of trajectories into a data set: npz, H5MD, ASF/AMC, NRI, ASE's, MDAnalysis's.

    Args:
        file: what to read, or the word solar-system for the ephemeris of the planets.
        out: folder of the data set.
        topology: for MDAnalysis, the file that names the atoms.
        select: for MDAnalysis, which atoms.
        time_step: between frames, for files that do not tell it.
    """
    from spacetime_en.data.datasets.solar import solar_system
    from spacetime_en.data.readers import read

    given = {"topology": topology, "select": select, "time_step": time_step}
    options = {key: value for key, value in given.items() if value is not None}
    found = solar_system() if str(file) == "solar-system" else read(file, **options)
    found.save(out)
    runs, frames, nodes, dims = found.x.shape
    step = (found.times[-1] - found.times[0]) / max(1, frames - 1)
    unit = found.meta.get("time_unit") or "time units"
    length = found.meta.get("length_unit") or "own units"
    shortest = frames if found.lengths is None else found.lengths.min()
    long = f"{frames}" if shortest == frames else f"{shortest} to {frames}"
    Terminal().say(
        f"{out}:\n{runs} run(s) of {long} frames, {nodes} nodes in {dims} dimensions,\n"
        f"{step:g} {unit} between frames, lengths in {length},"
        f"\nvelocities {'from the file' if found.measured_velocities else 'from differences'}, "
        f"attributes: {', '.join(found.attributes) or 'none'}, "
        f"{'periodic box' if found.box is not None else 'no box'}."
    )


def demo(out: Path = Path("demo"), seed: int = 0) -> None:
    """Train a small SET and two baselines on simulated particles, print the table, draw pictures.

    Args:
        out: folder for the runs and the pictures.
        seed: of the weights and the order of the windows.
    """
    from spacetime_en.report.demo import run_demo

    run_demo(out, seed)


def bench(sections: Positional[tuple[str, ...]] = (), json: bool = False) -> None:
    """Measure the model beside the plain way to write it, on this machine; in a clone only.

    Args:
        sections: training, loaded, memory, attention, sparse, inference, layer; by default all.
        json: print one object instead of lines.
    """
    root = Path(__file__).parents[3]
    if not (root / "benchmarks" / "speed.py").exists():
        raise InputError(
            "bench: the benchmarks belong to the repository and not to the installed package; "
            "clone it, and run `make bench` there."
        )
    sys.path.insert(0, str(root))
    speed = importlib.import_module("benchmarks.speed")
    if unknown := [name for name in sections if name not in speed.SECTIONS]:
        raise no_such("section", unknown[0], list(speed.SECTIONS))
    speed.report(sections or tuple(speed.SECTIONS), json)


def reproduce(
    tables: Positional[tuple[str, ...]] = (),
    scale: Literal["quick", "cpu", "paper"] = "quick",
    out: Path | None = None,
    targets: Literal["true", "zero"] = "true",
    workers: int | None = None,
) -> None:
    """Redo the paper's experiments: tables, figures and a report; run it again to go on.

    Args:
        tables: baselines, horizons, n20, n30, noisy, ablation; by default all.
        scale: quick (a test of the machinery), cpu (hours on two cores; what we publish) or paper
            (the paper's own sizes and settings, for a GPU).
        out: folder for everything; by default results/SCALE.
        targets: zero is for the audit of the published figures, and labels everything it makes.
        workers: processes, one core (or GPU) each; by default as many as there are.
    """
    from spacetime_en.reproduce import reproduce

    folder = Path("results") / scale if out is None else out
    reproduce(tables, scale=scale, out=folder, zero=targets == "zero", workers=workers)


COMMANDS = {
    "models": models,
    "demo": demo,
    "simulate": simulate,
    "bench": bench,
    "reproduce": reproduce,
}
DATA_COMMANDS = {"info": data_info, "import": data_import}


def run(arguments: list[str]) -> None:
    """Parse the arguments and call the command that they name."""
    torch.set_flush_denormal(True)  # numbers below 1e-38 make a CPU crawl, and mean nothing
    if arguments[:1] == ["data"]:
        _run(DATA_COMMANDS, "spacetime data", "Describe and import data.", arguments[1:])
    else:
        what = "Equivariant forecasting of moving point clouds. (Also: spacetime data --help)"
        known = dict(COMMANDS)
        if arguments[:1] == [] or arguments[0] not in known:  # (Lightning is slow to import)
            from spacetime_en.cli import runs, training

            known |= training.commands(arguments) | runs.commands(arguments)
        _run(known, "spacetime", what, arguments)


def _run(commands: dict[str, Any], prog: str, description: str, arguments: list[str]) -> None:
    made = tyro.extras.subcommand_cli_from_dict(
        commands, prog=prog, description=description, args=arguments
    )
    if made is not None:  # a command with options of its own making
        made()
