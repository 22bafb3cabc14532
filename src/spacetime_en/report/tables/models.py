"""The presets with their parameter counts and symmetries."""

from collections.abc import Sequence
from typing import Any

import torch

from spacetime_en._util.terminal import Terminal
from spacetime_en.geometry import Symmetries
from spacetime_en.nn.presets import PRESETS, build_model


def describe_presets(nodes: Sequence[int]) -> list[dict[str, Any]]:
    """One row for each preset and number of nodes."""
    return [_described(preset, n) for preset in PRESETS for n in dict.fromkeys(nodes)]


def _described(preset: str, nodes: int) -> dict[str, Any]:
    """Describe a preset, or name the package that it lacks."""
    row = {"preset": preset, "nodes": nodes}
    try:
        with torch.device("meta"):  # parameter counts need no memory
            model = build_model(preset, nodes=nodes)
    except ImportError as error:
        return row | {"needs": str(error)}
    return row | {
        "parameters": sum(p.numel() for p in model.parameters()),
        "equivariant": model.is_equivariant,
        "symmetries": model.symmetries._asdict(),
    }


def print_presets(rows: Sequence[dict[str, Any]], terminal: Terminal) -> None:
    """Print the rows as a table with one line per preset."""
    nodes = list(dict.fromkeys(row["nodes"] for row in rows))
    table, missing = [], {}
    for preset in PRESETS:
        by_nodes = [row for row in rows if row["preset"] == preset]
        if "needs" in by_nodes[0]:
            missing[preset] = by_nodes[0]["needs"]
            table.append([preset, *("–" for _ in (*nodes, *Symmetries._fields))])
            continue
        symmetries = ("yes" if holds else "no" for holds in by_nodes[0]["symmetries"].values())
        table.append([preset, *(f"{row['parameters']:,}" for row in by_nodes), *symmetries])
    terminal.table(("preset", *(f"N = {n}" for n in nodes), "transl.", "rot.", "perm."), table)
    for preset, needs in missing.items():
        terminal.say(f"{preset}: {needs}")
