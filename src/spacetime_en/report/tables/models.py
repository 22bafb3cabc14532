"""The presets with their parameter counts and symmetries."""

from collections.abc import Sequence
from typing import Any

import torch

from spacetime_en._util.terminal import Terminal
from spacetime_en.nn.presets import PRESETS, build_model


def describe_presets(nodes: Sequence[int]) -> list[dict[str, Any]]:
    """One row for each preset and each number of nodes."""
    rows = []
    for preset in PRESETS:
        for n in dict.fromkeys(nodes):
            with torch.device("meta"):  # counts need no memory
                model = build_model(preset, nodes=n)
            rows.append(
                {
                    "preset": preset,
                    "nodes": n,
                    "parameters": sum(p.numel() for p in model.parameters()),
                    "equivariant": model.is_equivariant,
                    "symmetries": model.symmetries._asdict(),
                }
            )
    return rows


def print_presets(rows: Sequence[dict[str, Any]], terminal: Terminal) -> None:
    """Print the rows as a table with one line per preset."""
    nodes = list(dict.fromkeys(row["nodes"] for row in rows))
    table = []
    for preset in PRESETS:
        by_nodes = [row for row in rows if row["preset"] == preset]
        symmetries = ("yes" if holds else "no" for holds in by_nodes[0]["symmetries"].values())
        table.append([preset, *(f"{row['parameters']:,}" for row in by_nodes), *symmetries])
    terminal.table(("preset", *(f"N = {n}" for n in nodes), "transl.", "rot.", "perm."), table)
