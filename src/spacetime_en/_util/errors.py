"""The exception for input that a user can correct, and messages used in several places."""

import difflib
import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any


class InputError(ValueError):
    """Bad input, in one sentence: which argument, what was found, what was expected."""


class Interrupted(BaseException):
    """A training was asked to stop (Ctrl-C, SIGTERM), and did so between two steps."""


def printable(text: str, keep: str = "") -> str:
    """`text` with control characters escaped, except those in `keep`."""
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def first_line(error: BaseException, most: int = 400) -> str:
    """The first line of another package's error message, which may span pages."""
    lines = (" ".join(line.split()).rstrip(".") for line in str(error).splitlines())
    message = printable(next(filter(None, lines), type(error).__name__))
    return message if len(message) <= most else f"{message[: most - 3]}..."


def in_short(error: BaseException) -> str:
    """An error in one line: its message, and its kind if the message is not meant for users."""
    kind, message = type(error).__name__, first_line(error)
    is_told = isinstance(error, (InputError, ImportError, OSError))
    return message if is_told or message == kind else f"{kind}: {message}"


def no_such(what: str, name: object, choices: Iterable[str]) -> InputError:
    """The error for a name that is not among the choices; suggests the nearest one."""
    choices = list(choices)
    near = difflib.get_close_matches(str(name)[:100], choices, n=1)
    hint = f"expected one of {', '.join(choices)}." if choices else "there are none."
    hint = f"did you mean {near[0]!r}?" if near else hint
    return InputError(f"{what}: there is no {name!r:.60}; {hint}")


def require(package: str, extra: str) -> Any:
    """Import an optional package, or say which extra installs it."""
    try:
        return import_module(package)
    except ImportError:
        raise ImportError(
            f"this needs the package {package}: pip install 'spacetime-en[{extra}]'."
        ) from None


def amount(number: int, what: str) -> str:
    """A number of things in words: 1 node, 2 nodes."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def without_password(text: str) -> str:
    """A text without the passwords in its URLs, such as those of databases."""
    text = re.sub(r"(://[^:/@\s]*):[^\s]*@", r"\1:***@", text)
    return re.sub(r"([?&]password=)[^&\s]*", r"\1***", text)
