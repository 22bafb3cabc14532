"""Sphinx: the pages are Markdown, the API reference comes from the docstrings.

Tutorials are notebooks, shown with the output that ``make tutorials`` has kept (notebooks.py).
"""

import sys
from pathlib import Path

from docutils.nodes import SkipNode
from docutils.utils.math import latex2mathml

sys.path.insert(0, str(Path(__file__).parent))  # notebooks.py

project = "spacetime-en"
author = "The spacetime-en authors"
extensions = [
    "myst_parser",
    "notebooks",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
myst_enable_extensions = ["amsmath", "attrs_block", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "spacetime-en"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_math_renderer = "mathml"
exclude_patterns = ["_build", "**/executed"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"


def inline_formula(self, node):
    """A formula as MathML, which browsers draw by themselves, offline."""
    self.body.append(latex2mathml.tex2mathml(node.astext(), as_block=False))
    raise SkipNode


def displayed_formula(self, node):
    """A formula on lines of its own."""
    formula = latex2mathml.tex2mathml(node.astext(), as_block=True)
    self.body.append(f'<div class="math">{formula}</div>')
    raise SkipNode


def setup(app):
    """Docstrings write |x| for a length, which reStructuredText would take for a substitution."""

    def escape(app, what, name, obj, options, lines):
        lines[:] = [line.replace("|", r"\|") for line in lines]

    app.connect("autodoc-process-docstring", escape)
    app.add_html_math_renderer(
        "mathml", inline_renderers=(inline_formula, None), block_renderers=(displayed_formula, None)
    )
