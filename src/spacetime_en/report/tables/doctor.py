"""The state of this installation: the findings of ``spacetime doctor``."""

import os
import platform
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import torch
from packaging.requirements import Requirement

from spacetime_en._util.errors import InputError
from spacetime_en._util.files import cache_folder
from spacetime_en._util.machine import cores, free_memory, free_room, in_words
from spacetime_en._util.terminal import Terminal
from spacetime_en.data.datasets.mocap import find_motions
from spacetime_en.data.datasets.pedestrians import find_scenes

PACKAGE = "spacetime-en"
# What each extra adds; the packages behind it are in the installed metadata.
ENABLES = {
    "ase": "read and write ASE's formats (extended XYZ, .traj, ...)",
    "e3nn": "steerable features (presets tfn and se3-transformer)",
    "h5md": "read and write H5MD trajectories",
    "hub": "models from and to the Hugging Face Hub",
    "mdanalysis": "read MDAnalysis's formats (DCD, XTC, PDB, ...)",
    "onnx": "spacetime export --format onnx",
    "parquet": "read and write Parquet tables",
    "postgres": "studies of many workers on PostgreSQL",
    "pyg": "graphs from and to PyTorch Geometric",
    "ray": "simulations and comparisons on a Ray cluster",
    "solar": "the planets (task solar-system)",
}
PROGRAMS = {"ffmpeg": "films as .mp4 (spacetime animate)"}
MEASURED_DATA: dict[str, tuple[str, str, Callable[[Path], Path]]] = {
    "CMU motion capture": ("SPACETIME_EN_CMU", "cmu_mocap", find_motions),
    "ETH/UCY pedestrians": ("SPACETIME_EN_ETH_UCY", "eth_ucy", find_scenes),
}


def examine() -> dict[str, Any]:
    """All findings, as plain values."""
    needed = [Requirement(line) for line in requires(PACKAGE) or ()]
    always = [one for one in needed if one.marker is None]
    cache = cache_folder()
    return {
        "versions": {
            PACKAGE: version(PACKAGE),
            "python": platform.python_version(),
            **{one.name: _installed(one) for one in always},
        },
        "problems": [
            f"{one.name}: {_installed(one) or 'missing'}, but {one.specifier} is needed"
            for one in always
            if not _fits(one)
        ],
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "devices": _devices(),
            "cores": cores(),
            "threads": torch.get_num_threads(),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
            "free memory": free_memory(),
        },
        "cache": {
            "variable": "SPACETIME_EN_CACHE",
            "folder": str(cache),
            "exists": cache.is_dir(),
            "free": free_room(cache),
        },
        "measured data": [_looked_for(name, cache) for name in MEASURED_DATA],
        "extras": [_extra(name, needed) for name in ENABLES],
        "programs": [
            {"program": name, "enables": what, "installed": shutil.which(name) is not None}
            for name, what in PROGRAMS.items()
        ],
    }


def _installed(requirement: Requirement) -> str | None:
    """The installed version, if any; nothing is imported."""
    try:
        return version(requirement.name)
    except PackageNotFoundError:
        return None


def _fits(requirement: Requirement) -> bool:
    found = _installed(requirement)
    return found is not None and requirement.specifier.contains(found, prereleases=True)


def _extra(name: str, needed: list[Requirement]) -> dict[str, Any]:
    """Whether the packages of an extra are installed in suitable versions."""
    packages = [
        one for one in needed if one.marker is not None and one.marker.evaluate({"extra": name})
    ]
    missing = [f"{one.name}{one.specifier}" for one in packages if not _fits(one)]
    return {
        "extra": name,
        "enables": ENABLES[name],
        "installed": bool(packages) and not missing,
        "missing": missing,
        "install": f"pip install '{PACKAGE}[{name}]'",
    }


def _looked_for(name: str, cache: Path) -> dict[str, Any]:
    """Measured data that are not downloaded automatically: where they are expected."""
    variable, folder, find = MEASURED_DATA[name]
    place = Path(os.environ.get(variable) or cache / folder)
    try:
        find(cache / folder)
        found = True
    except InputError:
        found = False
    return {"data": name, "variable": variable, "folder": str(place), "found": found}


def _devices() -> list[str]:
    """The devices available to PyTorch."""
    cuda = [
        f"cuda:{number} {torch.cuda.get_device_name(number)}"
        for number in range(torch.cuda.device_count())
    ]
    return ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]


def print_findings(findings: dict[str, Any], terminal: Terminal) -> None:
    """Print what :func:`examine` found, one line each, and how to install what is missing."""
    machine, cache = findings["machine"], findings["cache"]
    lines = [f"{name} {found or 'MISSING'}" for name, found in findings["versions"].items()]
    named = machine["OMP_NUM_THREADS"]
    free = f"{in_words(cache['free'])} free"
    sections = {
        "Versions": [", ".join(lines[start : start + 4]) for start in range(0, len(lines), 4)],
        "Machine": [
            f"{machine['system']}, {machine['instructions']}; {', '.join(machine['devices'])}",
            f"{machine['cores']} cores, {machine['threads']} threads for PyTorch"
            + (f" (OMP_NUM_THREADS={named})" if named else ""),
            f"{in_words(machine['free memory'])} of memory free",
        ],
        f"Cache of simulated tasks ({cache['variable']})": [
            f"{cache['folder']}: {free}{'' if cache['exists'] else ', not made yet'}"
        ],
        "Measured data": [
            f"{_mark(one['found'])}  {one['data']} ({one['variable']}): {one['folder']}"
            for one in findings["measured data"]
        ],
        "Extras": [
            f"{_mark(one['installed'])}  {one['extra']:11}{one['enables']}"
            for one in findings["extras"]
        ],
        "Programs": [
            f"{_mark(one['installed'])}  {one['program']:11}{one['enables']}"
            for one in findings["programs"]
        ],
        "Problems": findings["problems"],
    }
    for title, rows in sections.items():
        if rows:
            terminal.say("\n".join([f"{title}:", *(f"  {row}" for row in rows), ""]))
    if absent := [one["extra"] for one in findings["extras"] if not one["installed"]]:
        terminal.say(f"What is missing: pip install '{PACKAGE}[{','.join(absent)}]'")


def _mark(there: bool) -> str:
    return "yes" if there else "no "
