"""Tutorials: MyST notebooks, run by ``python docs/notebooks.py``, and shown with their output.

A page with ``file_format: mystnb`` has its code in ``{code-cell}`` blocks. Running writes it as a
Jupyter notebook with all output to the folder ``executed`` beside it; building the docs reads the
output from there, so that it needs neither a kernel nor minutes. A test compares the two texts.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$\n?", re.M | re.S)
FRONT = re.compile(r"\A---\n(.*?)\n---\n", re.S)
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def notebooks() -> list[Path]:
    """All pages that are notebooks."""
    pages = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)
    return [p for p in pages if "file_format: mystnb" in p.read_text("utf-8")[:200]]


def cells(page: Path) -> list[str]:
    """The code of a page, cell by cell."""
    return [code.rstrip("\n") for code in CELL.findall(page.read_text("utf-8"))]


def executed(page: Path) -> Path:
    """Where a page is kept with its output."""
    return page.parent / "executed" / f"{page.stem}.ipynb"


def outputs(page: Path) -> dict[str, list[dict[str, Any]]]:
    """The output of each cell when the page was run, by its code; empty if it never was."""
    if not executed(page).exists():
        return {}
    notebook = json.loads(executed(page).read_text("utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return {"".join(cell["source"]): cell["outputs"] for cell in code}


def run(page: Path) -> Any:
    """Run a page in a folder of its own; an error in a cell is raised."""
    from nbclient import NotebookClient
    from nbformat import v4

    text, made, end = FRONT.sub("", page.read_text("utf-8")), [], 0
    for match in CELL.finditer(text):
        made.append(v4.new_markdown_cell(text[end : match.start()].strip()))
        made.append(v4.new_code_cell(match[1].rstrip("\n")))
        end = match.end()
    made.append(v4.new_markdown_cell(text[end:].strip()))
    for number, cell in enumerate(made):
        cell["id"] = f"cell-{number}"  # the same every time
    notebook = v4.new_notebook(cells=[cell for cell in made if cell.source])
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["COLUMNS"] = "100"
    with tempfile.TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=1200, kernel_name="python3", resources=where).execute()
    return notebook


def keep(page: Path, notebook: Any) -> None:
    """Write a page's notebook, without colours, times and warnings of the kernel."""
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = _merged([o for o in cell.outputs if o.get("name") != "stderr"])
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    executed(page).parent.mkdir(exist_ok=True)
    executed(page).write_text(text, "utf-8")


def _merged(all_outputs: list[Any]) -> list[Any]:
    """Output with consecutive pieces of printed text joined."""
    merged: list[Any] = []
    for output in all_outputs:
        if "text" in output and merged and "text" in merged[-1]:
            merged[-1]["text"] += output["text"]
        else:
            merged.append(output)
    for output in merged:
        if "text" in output:
            output["text"] = ANSI.sub("", output["text"])
    return merged


# --- in the docs --------------------------------------------------------------------------------


def setup(app: Any) -> dict[str, Any]:
    """Sphinx's entry: the directive ``code-cell``."""
    from docutils import nodes
    from sphinx.directives.code import CodeBlock

    class CodeCell(CodeBlock):
        """A cell of a notebook, and below it what it printed and drew."""

        required_arguments = 0
        optional_arguments = 1

        def run(self) -> list[nodes.Node]:
            shell = self.content and self.content[0].startswith("%%bash")
            source = "\n".join(self.content)
            if shell:
                self.content = self.content[1:]
            self.arguments = ["bash" if shell else "python"]
            page = Path(self.env.doc2path(self.env.docname))
            known = outputs(page)
            self.env.note_dependency(str(executed(page)))
            shown = [self.shown(place, o) for place, o in enumerate(known.get(source, []))]
            return [*super().run(), *(node for node in shown if node is not None)]

        def shown(self, place: int, output: dict[str, Any]) -> nodes.Node | None:
            data = output.get("data", {})
            for kind, ending in (("image/png", "png"), ("image/gif", "gif")):
                if kind in data:
                    return self.image(place, base64.b64decode("".join(data[kind])), ending)
            text = "".join(output.get("text") or data.get("text/plain") or "").rstrip()
            if not text:
                return None
            block = nodes.literal_block(text, text, language="text", classes=["output"])
            return block

        def image(self, place: int, content: bytes, ending: str) -> nodes.Node:
            """An image, written where Sphinx looks for the page's pictures."""
            folder = Path(self.env.app.doctreedir) / "pictures"
            folder.mkdir(parents=True, exist_ok=True)
            name = f"{self.env.docname.replace('/', '-')}-{self.lineno}-{place}.{ending}"
            (folder / name).write_bytes(content)
            below = Path(os.path.relpath(folder / name, DOCS)).as_posix()
            return nodes.image(uri=f"/{below}", alt="what the cell draws", classes=["output"])

    app.add_directive("code-cell", CodeCell)
    return {"parallel_read_safe": True}


def main() -> None:
    """Run the pages named, or all, and keep their output."""
    names = sys.argv[1:]
    for page in notebooks():
        if names and page.stem not in names:
            continue
        start = time.monotonic()
        keep(page, run(page))
        print(f"{page.relative_to(DOCS)}: {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
