"""Commands that are plain functions: their options are the function's arguments."""

import importlib
import json as json_module
import sys
from pathlib import Path
from typing import Literal

import numpy as np
from tyro.conf import Positional

from spacetime_en._util.errors import InputError, amount, no_such
from spacetime_en._util.progress import progress_bar
from spacetime_en._util.terminal import Terminal
from spacetime_en.data.columns import Columns


def models(nodes: tuple[int, ...] = (5, 20, 30), json: bool = False) -> None:
    """List the presets with parameter counts and symmetries.

    Args:
        nodes: numbers of nodes N to count parameters for.
        json: print a JSON list instead of a table.
    """
    from spacetime_en.report.tables.models import describe_presets, print_presets

    if not nodes:
        raise InputError("nodes: expected one or more numbers of nodes, found none.")
    rows = describe_presets(nodes)
    if json:
        print(json_module.dumps(rows, indent=2))
    else:
        print_presets(rows, Terminal())


def doctor(json: bool = False) -> None:
    """Show versions, devices, folders, and what extras would add.

    Args:
        json: print a JSON object instead of tables.
    """
    from spacetime_en.report.tables.doctor import examine, print_findings

    findings = examine()
    if json:
        print(json_module.dumps(findings, indent=2))
    else:
        print_findings(findings, Terminal())


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
    """Simulate trajectories into a data set.

    Run the same command again to continue after an interruption.

    Args:
        system: charged, gravity or springs.
        out: folder of the data set.
        num: number of trajectories.
        nodes: number of particles in each.
        dims: dimensions of space, 2 or 3.
        steps: number of time steps to simulate; with neither --steps nor --save, as many as the
            paper's task needs.
        save: time steps at which to record a frame.
        seed: seed of the initial conditions.
        scheme: integrator: kick-drift (the paper's), verlet or adaptive.
        shard: simulate only shard i of n, as i/n with i from 0; for clusters.
        engine: local, or ray to simulate on a Ray cluster.
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
        trajectories = simulate(
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
    print(f"{out}: {trajectories if len(trajectories) else f'shard {shard} written'}")


def data_import(
    file: Positional[Path],
    out: Path,
    topology: Path | None = None,
    select: str | None = None,
    time_step: float | None = None,
    frame_step: float | None = None,
    interpolate: int | None = None,
    columns: Columns = Columns(),  # noqa: B008 (it cannot be changed)
) -> None:
    """Import trajectories from a file into a data set.

    Formats: tables of tracks (CSV, TSV, text, Parquet, or a folder of them), .npz, H5MD, ASF/AMC
    motion capture, NRI, and everything that ASE and MDAnalysis read.

    Args:
        file: file to read, or the word solar-system for the ephemeris of the planets.
        out: folder of the data set.
        topology: for MDAnalysis, the topology file, which names the atoms.
        select: for MDAnalysis, the selection of atoms, such as "name CA".
        time_step: time between frames, for files that do not give it.
        frame_step: for tables, frame numbers (or time) between frames; without it, the most common
            gap.
        interpolate: for tables, fill gaps of up to this many frames by linear interpolation;
            without it, they stay gaps.
        columns: for tables, the names of columns that do not have the usual names.
    """
    from spacetime_en.data.datasets.solar import solar_system
    from spacetime_en.data.readers import read

    if str(file) == "solar-system":
        data = solar_system()
    else:
        data = read(
            file,
            topology=topology,
            select=select,
            time_step=time_step,
            frame_step=frame_step,
            interpolate=interpolate,
            columns=None if columns == Columns() else columns,
        )
    data.save(out)
    trajectories, frames, nodes, dims = data.x.shape
    step = (data.times[-1] - data.times[0]) / max(1, frames - 1)
    unit = data.meta.get("time_unit") or "time units"
    length = data.meta.get("length_unit") or "own units"
    shortest = frames if data.lengths is None else data.lengths.min()
    long = f"{frames}" if shortest == frames else f"{shortest} to {frames}"
    many = amount(nodes, "node")
    many = many if data.ids is None else f"at most {many} at a time"
    Terminal().say(
        f"{out}:\n{amount(trajectories, 'run')} of {long} frames, {many} in {dims} dimensions,\n"
        f"{step:g} {unit} between frames, lengths in {length},"
        f"\nvelocities {'from the file' if data.measured_velocities else 'from differences'}, "
        f"attributes: {', '.join([*data.attributes, *data.frame_attributes]) or 'none'}, "
        f"{'periodic box' if data.box is not None else 'no box'}."
    )
    if data.observed is not None and "notes" not in data.meta:
        share = np.mean([data.observed[run].mean() for run in range(trajectories)])
        why = "; NaN positions are not observed" if data.meta.get("missing") == "nan" else ""
        Terminal().say(f"observed: {100 * share:.1f} % of nodes and frames{why}.")
    for note in data.meta.get("notes") or ():
        Terminal().say(f"{note}.")


def demo(out: Path = Path("demo"), seed: int = 0) -> None:
    """Train four small models; print a table, draw plots.

    Args:
        out: folder for the runs and the pictures.
        seed: seed of the initial weights and of the order of the training windows.
    """
    from spacetime_en.report.demo import run_demo

    run_demo(out, seed)


def bench(sections: Positional[tuple[str, ...]] = (), json: bool = False) -> None:
    """Benchmark the models on this machine (in a clone only).

    Args:
        sections: training, loaded, memory, attention, sparse, inference, prediction, layer,
            general; by default all.
        json: print a JSON object instead of lines.
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
    only: tuple[str, ...] = (),
) -> None:
    """Reproduce the paper's tables, figures and report.

    Run the same command again to continue after an interruption.

    Args:
        tables: baselines, horizons, h1000, n20, n30, noisy, ablation, beyond; by default all.
        scale: quick (tiny, to test that everything runs), cpu (hours on two cores; the
            results in docs/) or paper (the paper's sizes and settings, for a GPU).
        out: folder for everything; by default results/SCALE.
        targets: zero trains on all-zero targets, to explain the published errors; every output
            is labelled.
        workers: number of processes, each with one core (or GPU); by default one for each.
        only: the experiments with these names, with the trials that they need; * stands for any
            text, as in 'n5-h1000--set*'.
    """
    from spacetime_en.reproduce import reproduce

    folder = Path("results") / scale if out is None else out
    reproduce(tables, scale=scale, out=folder, zero=targets == "zero", workers=workers, only=only)
