"""The command ``spacetime``: parses and calls, nothing else.

Every command is a plain function; its options are the function's own arguments.
"""

import json as json_module
import sys
from importlib.metadata import version
from pathlib import Path

import torch
import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from spacetime_en.demo import run_demo
from spacetime_en.errors import InputError
from spacetime_en.nn.presets import PRESETS, build_model


def models(nodes: tuple[int, ...] = (5, 20, 30), json: bool = False) -> None:
    """List the presets with their parameter counts and symmetries.

    Args:
        nodes: numbers of nodes N to build each preset for.
        json: print a list of objects instead of a table.
    """
    rows = []
    for preset in PRESETS:
        for n in nodes:
            with torch.device("meta"):  # counts need no memory
                model = build_model(preset, nodes=n)
            count = sum(p.numel() for p in model.parameters())
            rows.append((preset, n, count, model))
    if json:
        keys = ("preset", "nodes", "parameters", "equivariant")
        listed = [dict(zip(keys, (*row, m.is_equivariant), strict=True)) for *row, m in rows]
        print(json_module.dumps(listed, indent=2))
        return
    counts = (f"N = {n}" for n in nodes)
    table = Table(
        "preset", *counts, "transl.", "rot.", "perm.", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for column in table.columns[1 : 1 + len(nodes)]:
        column.justify = "right"
    for preset in PRESETS:
        own = [(count, model) for name, _, count, model in rows if name == preset]
        symmetries = ("yes" if holds else "no" for holds in own[0][1].symmetries)
        table.add_row(preset, *(f"{count:,}" for count, _ in own), *symmetries)
    Console().print(table)


def demo(out: Path = Path("demo"), seed: int = 0) -> None:
    """Build the paper's SET, forecast a few particles, check its equivariance, draw a picture.

    Args:
        out: folder for the picture.
        seed: of the particles and the weights.
    """
    run_demo(out, seed)


def main() -> None:
    """Entry point of the console command."""
    if sys.argv[1:] == ["--version"]:
        print(version("spacetime-en"))
        return
    try:
        tyro.extras.subcommand_cli_from_dict(
            {"models": models, "demo": demo},
            prog="spacetime",
            description="Equivariant forecasting of moving point clouds.",
        )
    except (InputError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
