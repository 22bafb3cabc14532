"""Fixtures shared by the tests of comparisons."""

from pathlib import Path

import pytest

from spacetime_en.compare.comparison import Compared
from tests.compare.inline import compare_here


@pytest.fixture(scope="session")
def compared(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """A finished comparison of five models."""
    return compare_here(tmp_path_factory.mktemp("compared") / "x", cache)
