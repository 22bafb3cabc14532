"""Sphinx: the pages are Markdown, the API reference comes from the docstrings.

Tutorials are MyST notebooks. ``make docs`` shows their code; ``make tutorials``, with the packages
of ``requirements-extra.lock``, runs them and shows what they print and draw, too.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from docutils.nodes import SkipNode
from docutils.utils.math import latex2mathml
from sphinx.directives.code import CodeBlock

project = "spacetime-en"
author = "The spacetime-en authors"
NOTEBOOKS = find_spec("myst_nb") is not None
extensions = [
    "myst_nb" if NOTEBOOKS else "myst_parser",
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
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
suppress_warnings = ["myst.xref_missing"]  # links from the pages to files of the repository

if NOTEBOOKS:
    nb_execution_mode = "off"  # `make tutorials` says cache
    nb_execution_in_temp = True
    nb_execution_raise_on_error = True
    nb_execution_timeout = 900
    nb_merge_streams = True
    # The commands of the environment that builds the docs.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


class CodeCell(CodeBlock):
    """A cell of a notebook as plain code, where myst-nb is not installed."""

    required_arguments = 0
    optional_arguments = 1

    def run(self):
        shell = self.content and self.content[0].startswith("%%bash")
        self.arguments = ["bash" if shell else "python"]
        return super().run()


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
    if not NOTEBOOKS:
        app.add_directive("code-cell", CodeCell)
