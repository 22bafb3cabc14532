"""Write the tables, the figures and a self-contained HTML report."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from spacetime_en._util.files import write_text_atomically
from spacetime_en.compare.page import html_report
from spacetime_en.compare.results import Result
from spacetime_en.compare.table import Table
from spacetime_en.reproduce.curves import make_panels
from spacetime_en.reproduce.figures import plot_attention, plot_panel, plot_scenes
from spacetime_en.reproduce.plan import AUDITABLE, AUDITED, TABLES, Data, H, Scale, plan, table
from spacetime_en.reproduce.scenes import make_scenes
from spacetime_en.reproduce.tables import Results, make_tables

VIEW_NOTE = (
    "Five charged particles. Thick: the ten observed frames. Thin, with discs: the true future. "
    "Marks: where each model says they are; it is trained anew for each of the four horizons, and "
    "between two of them its forecast is drawn as a straight line. Drag to turn, scroll or pinch "
    "to zoom, arrow keys work too."
)


def write_report(folder: Path, scale: Scale) -> Path:
    """Write tables (JSON and Markdown), figures (PNG and SVG) and the HTML report.

    Returns: the path of the report.
    """
    results = Results(folder, scale)
    tables, panels, scenes = make_tables(results), make_panels(results), make_scenes(results)
    facts = _facts(results)
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    for one in tables:
        write_text_atomically(folder / "tables" / f"{one.name}.md", one.to_markdown())
    numbers = {"facts": facts, "tables": [asdict(one) for one in tables]}
    write_text_atomically(
        folder / "tables.json", json.dumps(numbers, indent=1, ensure_ascii=False) + "\n"
    )
    figures = {panel.name: panel.title for panel in panels}
    for panel in panels:
        plot_panel(panel, folder / "figures")
    if scenes:
        plot_scenes(scenes, folder / "figures")
        figures["forecasts"] = "Test windows: the past, the true future, forecasts"
    maps = _attention(results)
    if maps:
        plot_attention(maps, folder / "figures")
        figures["attention"] = "Attention of the trained SET over time"
    write_text_atomically(folder / "README.md", _overview(scale, facts, tables, figures))
    data = {
        "title": "AUDIT: targets that are all zero"
        if tables and all(one.name == AUDITED for one in tables)
        else "The paper's experiments, with true targets",
        "what": _what(scale),
        "note": VIEW_NOTE,
        **numbers,
        "panels": [asdict(panel) for panel in panels],
        "scenes": [one.to_json() for one in scenes],
        "attention": maps,
    }
    write_text_atomically(folder / "report.html", html_report(data))
    return folder / "report.html"


def _overview(
    scale: Scale, facts: dict[str, str], tables: Sequence[Table], figures: dict[str, str]
) -> str:
    """All tables and figures on one Markdown page."""
    parts = [f"# The paper's experiments at scale “{scale.name}”\n\n{_what(scale)}\n"]
    parts += [f"## {one.title}\n\n{one.to_markdown()}" for one in tables]
    parts += ["## Figures\n"]
    parts += [f"![{title}](figures/{name}.png)" for name, title in figures.items()]
    parts += ["## How it was made\n"]
    parts += [f"- {term}: {text}" for term, text in facts.items()]
    return "\n".join(parts) + "\n"


def _what(scale: Scale) -> str:
    return f"Scale “{scale.name}”: {scale.what}."


def _attention(results: Results) -> list[dict[str, Any]]:
    result = results.tested(Data(), "set")
    maps = [] if result is None else result["attention"]
    weights = np.array([list(block.values()) for block in maps], dtype=float)
    return list(maps) if weights.size and np.isfinite(weights).all() else []


def _facts(results: Results) -> dict[str, str]:
    """Commands, seeds, versions, machines and data, as recorded in the results."""
    scale = results.scale
    planned = plan(list(TABLES), scale)
    audit = [e for name in AUDITABLE for e in table(name, scale, zero=True)]
    done, audited = results.of(planned), results.of(audit)
    finished = [*done, *audited]
    if not finished:
        return {}

    def every(describe: Callable[[Result], str]) -> str:
        return "; ".join(sorted({describe(result) for result in finished}))

    train, val, test = scale.counts(5)
    seconds = sum(result.get("training", {}).get("seconds", 0.0) for result in finished)
    return {
        "Commands": every(lambda result: f"spacetime {' '.join(result['environment']['command'])}"),
        "Done": f"{len(done)} of {len(planned)} experiments, {len(audited)} of {len(audit)} of "
        f"the audit's; {seconds / 3600:.1f} hours of training in all",
        "Data": f"charged particles; at N = 5 {train:,} trajectories for training, {val:,} for "
        f"validation, {test:,} for the test; ten frames in, {H:,} steps ahead",
        "Learning rates": "of every model the best of "
        + ", ".join(f"{rate:g}" for rate in scale.rates)
        + " by validation error, in shorter trials on the same task"
        if scale.rates
        else "the paper's",
        "Seeds": ", ".join(map(str, scale.seeds)) + " at N = 5, "
        f"{scale.seeds[0]} at N = 20 and 30 and for the horizons",
        "Loss": "Eq. 13: position MSE plus velocity MSE; the model of the lowest validation error "
        "is tested",
        "Versions": every(_versions),
        "Machine": every(_machine),
    }


def _versions(result: Result) -> str:
    return ", ".join(f"{k} {v}" for k, v in result["environment"]["versions"].items())


def _machine(result: Result) -> str:
    machine = result["environment"]["machine"]
    flushed = ", numbers below 1e-38 flushed to 0" if machine["flush_denormal"] else ""
    return ", ".join(machine["gpus"]) or (
        f"{machine['processor']} ({machine['capability']}), {machine['cores']} cores, "
        f"{machine['threads']} thread(s) a training{flushed}"
    )
