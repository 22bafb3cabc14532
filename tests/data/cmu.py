"""The location of the motion-capture data, if present."""

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).parents[3] / "shared" / "data" / "cmu_mocap"
CMU = Path(os.environ.get("SPACETIME_EN_CMU", _BESIDE))
needs_cmu = pytest.mark.skipif(
    not CMU.is_dir(), reason="needs the CMU motion capture data (set SPACETIME_EN_CMU)"
)
