"""Sphinx: the pages are Markdown, the API reference comes from the docstrings."""

project = "spacetime-en"
author = "The spacetime-en authors"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "spacetime-en"
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
suppress_warnings = ["myst.xref_missing"]  # links from the pages to files of the repository


def setup(app):
    """Docstrings write |x| for a length, which reStructuredText would take for a substitution."""

    def escape(app, what, name, obj, options, lines):
        lines[:] = [line.replace("|", r"\|") for line in lines]

    app.connect("autodoc-process-docstring", escape)
