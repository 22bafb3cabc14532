"""The map of the package in docs/architecture.md is drawn from the package as it is."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"


def test_the_drawn_map_is_up_to_date(tmp_path):
    # In a process of its own: the trace must not depend on what other tests have cached.
    subprocess.run(
        [sys.executable, FIGURES / "rooms.py", tmp_path],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        check=True,
    )
    for name in ("rooms.svg", "batch.svg"):
        fresh, checked_in = (tmp_path / name).read_text(), (FIGURES / name).read_text()
        assert fresh == checked_in, f"{name} is out of date: run python docs/figures/rooms.py"


def test_the_trace_reaches_the_first_loss():
    text = (FIGURES / "batch.svg").read_text()
    path = ("data.readers", "data.windows", "nn.layers.egcl", "training.module", "metrics")
    assert all(f">{module}<" in text for module in path)
