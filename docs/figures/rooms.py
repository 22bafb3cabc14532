"""Draw the rooms and a batch's way through them: python docs/figures/rooms.py [FOLDER].

``rooms.svg`` comes from the layers of ``pyproject.toml`` and the package's real imports,
``batch.svg`` from a trace of the functions that run between a file and the first loss. Nothing in
either picture is written by hand, and ``tests/test_architecture.py`` fails when one is out of date.
"""

from __future__ import annotations

import re
import sys
import tempfile
import textwrap
import tomllib
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from types import FrameType
from typing import Any

import grimp
import numpy as np
import torch

HERE = Path(__file__).parent
PACKAGE = "spacetime_en"
CORE = "core"  # the modules beside the folders
COLOURS = {
    "cli": "#E9D8F4",
    "reproduce": "#F4D8E4",
    "compare": "#F9DDDD",
    "report": "#FADCD0",
    "runs": "#FCE8C5",
    "training": "#FFF3B8",
    "evaluation": "#EAF2B8",
    "symmetries": "#DCEFD0",
    "conservation": "#DCEFBE",
    "nn": "#CDEBC5",
    "data": "#C5E8EB",
    CORE: "#CFDDF5",
    "_util": "#E6E6E6",
}
WIDTH, MARGIN, LINE = 860, 14, 16


def main(folder: Path) -> None:
    """Write both pictures to a folder."""
    (folder / "rooms.svg").write_text(draw_rooms())
    (folder / "batch.svg").write_text(draw_batch())


# --- rooms ----------------------------------------------------------------------------------------


def room_of(module: str) -> str:
    """The room of a module: a folder, ``evaluation``, or the modules beside the folders."""
    name = module.split(".")[1] if "." in module else CORE
    name = "cli" if name == "__main__" else name
    return name if name in COLOURS else CORE


def levels() -> list[tuple[str, ...]]:
    """The rooms from top to bottom, those of one level together."""
    settings = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text())
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    names = (re.findall(r"\w+", layer) for layer in layers)
    rooms = (tuple(dict.fromkeys(room_of(f"{PACKAGE}.{name}") for name in row)) for row in names)
    return list(dict.fromkeys(rooms))


def draw_rooms() -> str:
    """Every room with its modules and the rooms that it imports."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    modules: dict[str, dict[str, list[str]]] = {name: {} for name in COLOURS}
    imports: dict[str, set[str]] = {name: set() for name in COLOURS}
    for module in sorted(graph.modules - {PACKAGE}):
        room = room_of(module)
        imported = graph.find_modules_directly_imported_by(module) - {PACKAGE}
        imports[room] |= {room_of(name) for name in imported} - {room}
        if not graph.find_children(module):
            *folders, name = module.split(".")[1:]
            modules[room].setdefault("/".join(folders[1:]), []).append(name)
    canvas = Canvas()
    order = [room for level in levels() for room in level]
    above: set[str] = set()  # what the level above imports
    for level in levels():
        if above.intersection(level):
            canvas.arrow(WIDTH / 2, LINE)
            canvas.down(LINE)
        above = set().union(*(imports[room] for room in level))
        width = (WIDTH - MARGIN * (len(level) + 1)) / len(level)
        boxes = []
        for room in level:
            lines = [
                line
                for folder, names in modules[room].items()
                for line in textwrap.wrap(
                    (f"{folder}/ " if folder else "") + ", ".join(names), int(width / 6.6)
                )
            ]
            below = [name for name in order if name in imports[room]]
            boxes.append((room, lines, "imports " + (", ".join(below) or "nothing")))
        height = LINE * (2 + max(len(lines) for _, lines, _ in boxes)) + 12
        for place, (room, lines, footer) in enumerate(boxes):
            x = MARGIN + place * (width + MARGIN)
            canvas.box(x, width, height, COLOURS[room])
            canvas.text(x + 10, LINE + 2, room, "title")
            for number, line in enumerate([*lines, footer], start=2):
                style = "note" if line is footer else "text"
                canvas.text(x + 10, LINE * number + 2, line, style)
        canvas.down(height)
    return canvas.svg()


# --- a batch --------------------------------------------------------------------------------------


@dataclass
class Trace:
    """The functions that run in each stage, by module, in the order in which they are entered.

    Only functions that another module calls are kept: how a module does its own work is its own
    affair. ``_util`` is left out.
    """

    stages: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    depths: dict[tuple[str, str], int] = field(default_factory=dict)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Record a call; the first training step is a stage of its own, and the last."""
        module, name = _where(frame)
        if event == "return" and name == "training_step":
            sys.setprofile(None)
        if event != "call" or room_of(module) == "_util" or not module.startswith(PACKAGE):
            return
        if name == "training_step":
            self.stages["the first training step"] = {}
        shown = _shown(frame)
        callers = _callers(frame)
        if shown is None or (callers and callers[0] == module):
            return
        stage = next(reversed(self.stages))
        functions = self.stages[stage].setdefault(module, [])
        self.depths.setdefault((stage, module), len(dict.fromkeys(callers)))
        if shown not in functions:
            functions.append(shown)


def _where(frame: FrameType) -> tuple[str, str]:
    return str(frame.f_globals.get("__name__", "")), frame.f_code.co_name


def _shown(frame: FrameType) -> str | None:
    """A function as it is called; None for what is private, nested, or made by a decorator."""
    name = frame.f_code.co_qualname
    special = {"__init__": "()", "__getitem__": "[…]", "__iter__": " (iterated)"}
    *owner, last = name.split(".")
    if last in special and owner:
        name = owner[-1] + special[last]
    elif last.startswith("_"):
        return None
    return None if "<" in name or name.startswith("_") else name


def _callers(frame: FrameType) -> list[str]:
    """The modules of the package that a call comes through, the nearest first."""
    modules = []
    caller = frame.f_back
    while caller is not None:
        module, _ = _where(caller)
        if module.startswith(PACKAGE) and room_of(module) != "_util":
            modules.append(module)
        caller = caller.f_back
    return modules


def trace_batch() -> Trace:
    """Follow a small file to the first loss of a small SET."""
    import spacetime_en.training.trainer  # noqa: F401  (traced, this import takes seconds)
    from spacetime_en import Task, build_model, fit
    from spacetime_en.data.readers import read

    trace = Trace()
    torch.set_num_threads(1)  # with more, layers share their work in another way
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "walks.npz"
        np.savez(path, x=np.random.default_rng(0).standard_normal((20, 30, 5, 3)).cumsum(1))
        try:
            trace.stages["read(path)"] = {}
            sys.setprofile(trace)
            data = read(path)
            trace.stages["Task.from_trajectories(data)"] = {}
            task = Task.from_trajectories(data)
            graph, _ = task.train[:1]
            trace.stages['build_model("set", like=graph)'] = {}
            model = build_model("set", like=graph, hidden=4, blocks=1)
            trace.stages["fit(model, task)"] = {}
            fit(model, task, steps=1, accelerator="cpu", display=False)
        finally:
            sys.setprofile(None)
    return trace


def draw_batch() -> str:
    """The modules that a batch passes through, a line each, indented by who calls whom."""
    trace = trace_batch()
    canvas = Canvas()
    for stage, modules in trace.stages.items():
        canvas.text(MARGIN, LINE, stage, "title")
        canvas.down(LINE + 6)
        least = min(trace.depths[stage, module] for module in modules)
        for module, functions in modules.items():
            indent = 12 * (trace.depths[stage, module] - least)
            name = module.removeprefix(f"{PACKAGE}.")
            start = MARGIN + 8 + indent
            left = start + 7.3 * len(name) + 18
            lines = textwrap.wrap(", ".join(functions), int((WIDTH - left - MARGIN) / 6.9))
            canvas.box(start, 7.3 * len(name) + 8, LINE, COLOURS[room_of(module)])
            canvas.text(start + 4, LINE - 4, name, "module")
            for number, line in enumerate(lines, start=1):
                canvas.text(left, LINE * number - 4, line, "text")
            canvas.down(LINE * len(lines) + 2)
        canvas.down(6)
    return canvas.svg()


# --- drawing --------------------------------------------------------------------------------------


@dataclass
class Canvas:
    """An SVG picture that grows downwards, as text that a diff can show."""

    y: float = MARGIN
    parts: list[str] = field(default_factory=list)

    def down(self, height: float) -> None:
        """Go on below."""
        self.y += height

    def box(self, x: float, width: float, height: float, colour: str) -> None:
        """A box with round corners at the current height."""
        self.parts.append(
            f'<rect x="{x:g}" y="{self.y:g}" width="{width:.0f}" height="{height:g}" rx="4" '
            f'fill="{colour}"/>'
        )

    def text(self, x: float, dy: float, text: str, style: str) -> None:
        """A line of text whose foot is `dy` below the current height."""
        self.parts.append(
            f'<text x="{x:g}" y="{self.y + dy:g}" class="{style}">{escape(text)}</text>'
        )

    def arrow(self, x: float, length: float) -> None:
        """An arrow downwards."""
        top, tip = self.y + 2, self.y + length - 2
        self.parts.append(
            f'<path d="M{x:g} {top:g}V{tip:g}m-4 -5l4 5l4 -5" fill="none" stroke="#333"/>'
        )

    def svg(self) -> str:
        """The whole file."""
        height = self.y + MARGIN
        style = (
            "text{font:12px sans-serif;fill:#222}.title{font-weight:bold;font-size:13px}"
            ".module{font-family:monospace}.note{font-style:italic;fill:#555}"
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
            f'width="{WIDTH}" height="{height:g}">\n<style>{style}</style>\n'
            '<rect width="100%" height="100%" fill="#fff"/>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
