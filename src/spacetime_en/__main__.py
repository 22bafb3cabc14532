"""``python -m spacetime_en`` is the command ``spacetime``."""

from spacetime_en.cli import main

if __name__ == "__main__":
    main()
