"""What the integration tests share."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def reproduce(folder: Path, *arguments: str, check: bool = True) -> Any:
    """``spacetime reproduce`` in a process of its own, as a user starts it."""
    command = [sys.executable, "-m", "spacetime_en", "reproduce", "--out", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if check:
        assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Everything that is reproduced at scale quick, then the audit: the folder, what they said."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPACETIME_EN_CACHE", str(tmp_path_factory.mktemp("cache")))
        folder = tmp_path_factory.mktemp("reproduce")
        yield folder, reproduce(folder), reproduce(folder, "--targets", "zero")
