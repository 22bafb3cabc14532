"""What data conserve, as plain values and as a table."""

from typing import Any

from spacetime_en._util.terminal import Terminal
from spacetime_en.conservation.paths import true_paths
from spacetime_en.conservation.search import LARGEST_VARIATION, find_conserved
from spacetime_en.data.task import Task


def describe_conservation(task: Task) -> dict[str, Any]:
    """The conserved quantities of a task's training windows, checked on its test windows.

    Returns: ``paths``, ``held_out`` and ``frames``; ``conserved``, a list of quantities;
        ``rejected``, by kind, how much the best of all other combinations varies.
    """
    train, held_out = (true_paths(windows) for windows in (task.train, task.test))
    found = find_conserved(train, held_out)
    return {
        "task": task.label,
        "paths": found.paths,
        "held_out": found.held_out,
        "frames": train.x.shape[1],
        "nodes": train.x.shape[2],
        "terms": found.terms,
        "largest_variation": LARGEST_VARIATION,
        "conserved": [one.describe() for one in found.conserved],
        "rejected": found.rejected,
    }


def print_conservation(description: dict[str, Any], terminal: Terminal) -> None:
    """Print a description as a table and formulas that fit a terminal."""
    d = description
    terminal.say(d["task"], "bold")
    terminal.print(
        f"{d['paths']:,} paths of {d['frames']} states (of connected nodes), checked on "
        f"{d['held_out']:,} others"
    )
    rows = [
        [one["name"] or one["kind"], f"{one['variation']:.1e}", f"{one['variation_p90']:.1e}"]
        for one in d["conserved"]
    ]
    for kind, count in d["terms"].items():
        best = d["rejected"].get(kind)
        if best is not None:
            what = "other combination" if _any_of(d, kind) else "combination"
            rows.append([f"not: any {what} of {count} {kind}s", f"{best:.2g}", ""])
    terminal.table(("conserved", "varies by", "p90"), rows)
    for one in d["conserved"]:
        terminal.print(f"{one['name'] or one['kind']} = {one['formula']}")
    if any("u" in one["formula"].split()[-1] for one in d["conserved"]):
        terminal.print("y, u: position and velocity relative to the centre of mass")
    terminal.print(
        "varies by: along a path, relative to parts that vary independently; median. Up to "
        f"{d['largest_variation']:g} counts as conserved."
    )


def _any_of(description: dict[str, Any], kind: str) -> bool:
    return any(one["kind"] == kind for one in description["conserved"])
