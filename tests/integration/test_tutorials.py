"""The notebooks of the docs run from the first cell to the last; the site needs no network."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
import notebooks  # noqa: E402

NOTEBOOKS = {page.stem: page for page in notebooks.notebooks()}
NEEDS = {"molecules": "ase"}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the kernel's own packages
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name):
    for package in ("nbclient", "ipykernel", NEEDS.get(name, "torch")):
        pytest.importorskip(package)
    notebooks.run(NOTEBOOKS[name])  # raises what a cell raises


@pytest.mark.slow
def test_the_site_loads_nothing_from_a_network_and_its_links_lead_somewhere(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {page: page.read_text("utf-8") for page in tmp_path.rglob("*.html")}
    names = {
        page: set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for page, text in pages.items()
    }
    assert len(pages) > 30
    for page, text in pages.items():
        assert '<span class="math' not in text  # formulas are MathML
        loaded = re.findall(r'<(?:script|img|iframe|source)[^>]* src="([^"]+)"', text)
        loaded += re.findall(r'<link[^>]* rel="(?:stylesheet|preload)"[^>]* href="([^"]+)"', text)
        assert not [url for url in loaded if re.match(r"(?:https?:)?//", url)], page
        if "_modules" in page.parts:
            continue
        for link in re.findall(r'<a [^>]*href="([^"]+)"', text):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), (page.name, link)
            if anchor and target in names:
                assert anchor in names[target], (page.name, link)
    for style in tmp_path.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*['\"]?https?://", style.read_text("utf-8")), (
            style
        )
