"""The HTML report: leaderboard or tables, curves, scenes, and how it was made, in one file."""

from __future__ import annotations

from typing import Any

from spacetime_en.report.scene import asset, html_page


def html_report(data: dict[str, Any]) -> str:
    """The HTML report, with its data, styles and scripts in one file."""
    html, css, js = (
        asset(f"report.{kind}", "spacetime_en.compare") for kind in ("html", "css", "js")
    )
    return html_page(html, css, js, data)
