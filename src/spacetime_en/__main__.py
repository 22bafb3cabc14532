"""``python -m spacetime_en`` is the command ``spacetime``."""

import os
import sys

if not sys.flags.safe_path and os.getcwd() in sys.path:  # where Python looks first, after -m
    sys.path.remove(os.getcwd())  # anything may lie in a folder of data

from spacetime_en.cli import main

if __name__ == "__main__":
    main()
