"""The Python in the README and in the docs runs as written, and links have targets."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))
import notebooks  # noqa: E402

PAGES = [ROOT / "README.md", *(p for p in sorted(DOCS.rglob("*.md")) if "_build" not in p.parts)]
SNIPPETS = {
    str(page.relative_to(ROOT)): "".join(
        re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    )
    for page in PAGES
}
SNIPPETS = {page: code for page, code in SNIPPETS.items() if code}
NOTEBOOKS = {page.stem: page for page in notebooks.notebooks()}


@pytest.mark.parametrize("page", SNIPPETS)
def test_snippets_run(page):
    exec(compile(SNIPPETS[page], page, "exec"), {})


def test_the_table_of_models_is_what_the_code_says():
    import torch

    from spacetime_en import PRESETS, build_model

    text = (DOCS / "models.md").read_text()
    for preset in PRESETS:
        row = next(
            line for line in text.splitlines() if line.startswith("|") and f"`{preset}`" in line
        )
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        for nodes, cell in zip((5, 20, 30), cells[1:4], strict=True):
            with torch.device("meta"):
                model = build_model(preset, nodes=nodes)
            assert cell == f"{sum(p.numel() for p in model.parameters()):,}"
        assert cells[4:] == ["yes" if holds else "no" for holds in model.symmetries]


def test_the_readme_is_short_and_its_pictures_light():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 100
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert pictures
    for picture in pictures:  # (none from a network host)
        assert (ROOT / picture).stat().st_size < 2e6


# --- links --------------------------------------------------------------------------------------


def without_code(page):
    text = re.sub(r"^(`{3,}|:{3,})\{?(?:code|python|bash|toctree).*?^\1$", "", page.read_text(),
                  flags=re.M | re.S)  # fmt: skip
    return re.sub(r"^ {4}.*$|`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S),
                  flags=re.M)  # fmt: skip


def anchors(page):
    """What MyST and the forges call the headings of a page."""
    headings = re.findall(r"^#{1,6} +(.+)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.M)  # noqa: E501  # fmt: skip
    named = [re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in named}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


# --- formulas -----------------------------------------------------------------------------------


def test_formulas_can_be_drawn():
    """docutils turns them into MathML, and knows a part of LaTeX."""
    draw = pytest.importorskip("docutils.utils.math.latex2mathml").tex2mathml
    text = "\n\n".join(without_code(page) for page in PAGES)
    formulas = re.findall(r"\$\$(.+?)\$\$|\$([^$\n]+)\$", text, re.S)
    assert len(formulas) > 100
    for block, inline in formulas:
        assert draw(block or inline)


# --- notebooks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_cells_can_be_read(name):
    """Python compiles, and shell cells call commands that there are."""
    from spacetime_en.cli import COMMANDS

    code = notebooks.cells(NOTEBOOKS[name])
    assert code
    for cell in code:
        if cell.startswith("%%bash"):
            for words in re.findall(r"\bspacetime +([a-z]+(?: [a-z]+)?)", cell):
                assert any(words == c or words.startswith(f"{c} ") for c in COMMANDS), words
        else:
            ast.parse(re.sub(r"^%%writefile .*\n", "", cell))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_output_that_is_shown_is_that_of_the_text(name):
    """After a change, ``make tutorials`` runs the page again."""
    page = NOTEBOOKS[name]
    assert list(notebooks.outputs(page)) == notebooks.cells(page)
