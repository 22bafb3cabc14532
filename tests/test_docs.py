"""The Python in the README and in the docs runs as it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SNIPPETS = {
    page.relative_to(ROOT): "".join(
        re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    )
    for page in PAGES
}
SNIPPETS = {str(page): code for page, code in SNIPPETS.items() if code}


@pytest.mark.parametrize("page", SNIPPETS)
def test_snippets_run(page):
    exec(compile(SNIPPETS[page], page, "exec"), {})


def test_the_readmes_table_is_what_the_code_says():
    import torch

    from spacetime_en import PRESETS, build_model

    text = (ROOT / "README.md").read_text()
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
