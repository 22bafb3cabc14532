"""The one exception raised for input that a user can mend, and sentences said in several places."""

import difflib
from collections.abc import Iterable
from importlib import import_module
from typing import Any


class InputError(ValueError):
    """Bad input, told in one sentence: which argument, what was found, what was expected."""


class Interrupted(BaseException):
    """A training was asked to stop (Ctrl-C, SIGTERM), and did so between two steps."""


def printable(text: str, keep: str = "") -> str:
    """`text` with everything that could move a cursor shown as its escape, but for `keep`."""
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def no_such(what: str, name: object, known: Iterable[str]) -> InputError:
    """The error for a name that nobody knows, with the nearest one that somebody does."""
    known = list(known)
    near = difflib.get_close_matches(str(name)[:100], known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known)}."
    return InputError(f"{what}: there is no {name!r:.60}; {hint}")


def require(package: str, extra: str) -> Any:
    """Import an optional package, or say which extra brings it."""
    try:
        return import_module(package)
    except ImportError:
        raise ImportError(
            f"this needs the package {package}: pip install 'spacetime-en[{extra}]'."
        ) from None
