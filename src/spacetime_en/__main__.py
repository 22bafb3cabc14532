"""``python -m spacetime_en`` is the command ``spacetime``."""

import os
import sys
from contextlib import suppress

if not sys.flags.safe_path:  # or else Python looks first, after -m, in the working directory
    with suppress(OSError, ValueError):  # which may be gone
        sys.path.remove(os.getcwd())  # anything may lie in a folder of data

from spacetime_en.cli import main

if __name__ == "__main__":
    main()
