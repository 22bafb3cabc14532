"""``program.py MODULE ARGUMENTS``: read a file within limits, and store the result here.

The result is ``found.npz`` and ``found.json`` in the working directory; on failure, a message on
standard error.
"""

import json
import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np


def run_reader(module: str, arguments: dict[str, Any]) -> None:
    """Call the function ``read`` of a module in this folder."""
    _limit(arguments.pop("memory"), arguments.pop("seconds"))
    warnings.simplefilter("ignore")  # about guessed masses and missing fields
    try:
        read = runpy.run_path(str(Path(__file__).with_name(f"{module}.py")))["read"]
        arrays, texts = read(**arguments)
        np.savez("found.npz", **arrays)
        Path("found.json").write_text(json.dumps(texts))
    except MemoryError:
        sys.exit("needs more memory than there is")
    except Exception as error:  # these readers let any exception through
        what = " ".join(str(error).split())[:300]
        sys.exit(f"is cut off, damaged or of another format ({type(error).__name__}: {what})")


def _limit(memory: int, seconds: int) -> None:
    """Make this process fail, rather than the machine, if a file demands too much."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    except (ImportError, OSError, ValueError):  # no Unix, no Linux, or lower limits already
        return


if __name__ == "__main__":
    run_reader(sys.argv[1], json.loads(sys.argv[2]))
