"""``python -m spacetime_en`` is the command ``spacetime``."""

import os
import sys
from contextlib import suppress

# After -m, Python imports from the working directory first; a folder of data may contain anything.
if not sys.flags.safe_path:
    with suppress(OSError, ValueError):  # (the working directory may be gone)
        sys.path.remove(os.getcwd())

from spacetime_en.cli import main

if __name__ == "__main__":
    main()
