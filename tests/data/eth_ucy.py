"""The location of the pedestrian data, if present, and invented data."""

import os
from pathlib import Path

import numpy as np
import pytest

from spacetime_en.data.datasets.pedestrians import RECORDINGS

_BESIDE = Path(__file__).parents[3] / "shared" / "data" / "eth_ucy"
ETH_UCY = Path(os.environ.get("SPACETIME_EN_ETH_UCY", _BESIDE))
needs_eth_ucy = pytest.mark.skipif(
    not ETH_UCY.is_dir(), reason="needs the ETH/UCY pedestrians (set SPACETIME_EN_ETH_UCY)"
)

EARLY = 800  # frames below are trained on


def invent_scenes(folder, frames=120, people=20):
    """Write all recordings with invented people, who come and go; some frames are empty.

    Returns: the rows (frame, person, x, y) of each recording.
    """
    rng = np.random.default_rng(0)
    tables = {}
    for name in RECORDINGS:
        rows = []
        for person in range(people):
            first, stay = int(rng.integers(0, frames - 30)), int(rng.integers(5, 50))
            path = rng.uniform(-5, 5, 2) + rng.normal(0.3, 0.2, (stay, 2)).cumsum(0)
            rows += [(10 * (first + k), person + 1, *x) for k, x in enumerate(path)]
        rows = [row for row in rows if not 300 <= row[0] < 330]  # a gap in the recording
        table = np.array(sorted(rows))
        tables[name] = table
        cut = table[:, 0] < EARLY
        parts = {
            "all_data": ("", table),
            "train": ("_train", table[cut]),
            "val": ("_val", table[~cut]),
        }
        for part, (ending, lines) in parts.items():
            (folder / part).mkdir(parents=True, exist_ok=True)
            np.savetxt(folder / part / f"{name}{ending}.txt", lines, fmt="%.6g", delimiter="\t")
    return tables
