"""What is written: tables, figures, and one HTML report that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from spacetime_en.files import replace_whole
from spacetime_en.reproduce.curves import Panel, make_panels
from spacetime_en.reproduce.experiment import Result
from spacetime_en.reproduce.figures import plot_attention, plot_panel, plot_scenes
from spacetime_en.reproduce.plan import TABLES as NAMES
from spacetime_en.reproduce.plan import Data, Experiment, Scale, plan
from spacetime_en.reproduce.scenes import make_scenes
from spacetime_en.reproduce.tables import Results, Table, make_tables


def write_report(folder: Path, scale: Scale) -> Path:
    """Write tables (JSON and Markdown), figures (PNG and SVG) and the report from the results.

    Returns: the path of the report.
    """
    results = Results(folder, scale)
    tables, panels, scenes = make_tables(results), make_panels(results), make_scenes(results)
    facts = _facts(results)
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    for table in tables:
        _write(folder / "tables" / f"{table.name}.md", table.to_markdown())
    _write(folder / "README.md", _overview(scale, facts, tables, panels))
    plain = {"facts": facts, "tables": [table.to_json() for table in tables]}
    _write(folder / "tables.json", json.dumps(plain, indent=1, ensure_ascii=False) + "\n")
    for panel in panels:
        plot_panel(panel, folder / "figures")
    if scenes:
        plot_scenes(scenes, folder / "figures")
    maps = _attention(results)
    if maps:
        plot_attention(maps, folder / "figures")
    data = {
        "what": _what(scale),
        "facts": facts,
        "tables": [table.to_json() for table in tables],
        "panels": [asdict(panel) for panel in panels],
        "scenes": [scene.to_json() for scene in scenes],
        "attention": maps,
    }
    _write(folder / "report.html", page(data))
    return folder / "report.html"


def _overview(
    scale: Scale, facts: dict[str, str], tables: Sequence[Table], panels: Sequence[Panel]
) -> str:
    """All tables and figures on one page of Markdown."""
    parts = [f"# The paper's experiments at scale “{scale.name}”\n\n{_what(scale)}\n"]
    parts += [f"## {table.title}\n\n{table.to_markdown()}" for table in tables]
    parts += ["## Figures\n"]
    parts += [f"![{panel.title}](figures/{panel.name}.png)" for panel in panels]
    parts += ["## How it was made\n"]
    parts += [f"- {term}: {text}" for term, text in facts.items()]
    return "\n".join(parts) + "\n"


def _what(scale: Scale) -> str:
    return f"Scale “{scale.name}”: {scale.what}."


def page(data: dict[str, Any]) -> str:
    """The report: the page's parts and the data, in one file."""
    assets = resources.files("spacetime_en.reproduce") / "assets"
    read = {name: (assets / f"report.{name}").read_text("utf-8") for name in ("html", "css", "js")}
    # In a script element "</" could end it: "<\/" is the same text to JSON.
    text = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("</", "<\\/")
    made = read["html"].replace("/*STYLE*/", read["css"]).replace("/*SCRIPT*/", read["js"])
    return made.replace("/*DATA*/", text)


def _attention(results: Results) -> list[dict[str, Any]]:
    found = results.of([Experiment(Data(), "set", results.scale.seeds[0])])
    return found[0]["attention"] if found else []


def _facts(results: Results) -> dict[str, str]:
    """Commands, seeds, versions, machine and data, from the results themselves."""
    planned = [plan(list(NAMES), results.scale, zero) for zero in (False, True)]
    found = [results.of(experiments) for experiments in planned]
    known = [result for part in found for result in part]
    if not known:
        return {}
    some = known[0]
    versions = sorted({_versions(result) for result in known})
    machines = sorted({_machine(result) for result in known})
    task = some["settings"]["task"]
    train, val, test = task["counts"]
    seconds = sum(result.get("training", {}).get("seconds", 0.0) for result in known)
    return {
        "Commands": "; ".join(sorted({_command(result) for result in known})),
        "Done": f"{len(found[0])} of {len(planned[0])} experiments, {len(found[1])} of "
        f"{len(planned[1])} of the audit's; {seconds / 3600:.1f} hours of training in all",
        "Data": f"charged particles; at N = 5 {train:,} trajectories for training, {val:,} for "
        f"validation, {test:,} for the test; ten frames in, {task['horizon']:,} steps ahead",
        "Learning rates": "of every model the best of "
        + ", ".join(f"{rate:g}" for rate in results.scale.rates)
        + " by validation error, in shorter trials on the task at N = 5"
        if results.scale.rates
        else "the paper's",
        "Seeds": ", ".join(map(str, results.scale.seeds)) + " at N = 5, "
        f"{results.scale.seeds[0]} at N = 20 and 30 and for the horizons",
        "Loss": "Eq. 13: position MSE plus velocity MSE; the model of the lowest validation error "
        "is tested",
        "Versions": "; ".join(versions),
        "Machine": "; ".join(machines),
    }


def _command(result: Result) -> str:
    return "spacetime " + " ".join(result["environment"]["command"])


def _versions(result: Result) -> str:
    return ", ".join(f"{k} {v}" for k, v in result["environment"]["versions"].items())


def _machine(result: Result) -> str:
    machine = result["environment"]["machine"]
    gpus = ", ".join(machine["gpus"])
    return gpus or (
        f"{machine['processor']} ({machine['capability']}), {machine['cores']} cores, "
        f"{machine['threads']} thread(s) a training"
    )


def _write(path: Path, text: str) -> None:
    replace_whole(path, lambda temporary: temporary.write_text(text, "utf-8"))
