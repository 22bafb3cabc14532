"""One guard around all commands: whatever goes wrong ends in one sentence and a status.

The sentence goes to standard error and names what the user typed. Nothing that takes time is
imported here, because the guard is up while the rest is imported.
"""

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from spacetime_en._util.errors import InputError, Interrupted, printable
from spacetime_en._util.signals import stop_signals

DEBUG = "SPACETIME_EN_DEBUG"  # set to anything: a traceback instead of the sentence
STOPPED = 130  # the status of a command that was asked to stop
_LONGEST = 400  # characters of what other packages have to say
# What NumPy, PyTorch and CUDA say of memory in errors that have no class of their own.
_SHORT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc")
_TOO_LARGE = ("overflow", "too large", "too big", "exceeds the limit", "out of range")
_IMPORTING = "<frozen importlib._bootstrap>"


@contextmanager
def guarded(arguments: Sequence[str]) -> Iterator[None]:
    """Run a command in the block; errors, signals and closed pipes end the process in order.

    Args:
        arguments: what the user typed after the name of the command.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without é or × shows \xe9, and goes on
            stream.reconfigure(errors="backslashreplace")
    try:
        with stop_signals(_stop):
            _check_text(arguments)
            try:
                yield
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()  # what cannot be printed is an error like any other
    except (KeyboardInterrupt, Interrupted) as stop:
        with suppress(OSError):
            print(printable(str(stop)) or "stopped", file=sys.stderr)
        sys.exit(STOPPED)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _output_is_lost():
            sys.exit(1)  # whoever read the output, such as head, has enough
        if os.environ.get(DEBUG):
            raise
        sys.exit(f"error: {printable(_sentence(error, arguments))}")


def _stop(number: int, frame: FrameType | None) -> None:
    """Like Ctrl-C; but an import is not to be interrupted by an exception, it may swallow it."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            os.write(2, b"stopped\n")
            os._exit(STOPPED)
        frame = frame.f_back
    raise KeyboardInterrupt


def _check_text(arguments: Sequence[str]) -> None:
    """Refuse what is no text, and empty words: a path of no letters is the present folder."""
    for option, word in _options(arguments):
        if not word.strip():
            raise InputError(f"{option or 'arguments'}: expected a word, found {word!r}.")
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{word}: the argument is not text in {sys.getfilesystemencoding()}; if it is the "
                "name of a file, give it another one."
            ) from None


def _output_is_lost() -> bool:
    """Whether standard output takes no more; nothing is then printed any more."""
    try:
        print(flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


# --- sentences ------------------------------------------------------------------------------------


def _sentence(error: Exception, arguments: Sequence[str]) -> str:
    """What to tell the user of an error."""
    if isinstance(error, InputError | ImportError):
        return str(error)
    if isinstance(error, OSError):
        return _of_files(error, arguments)
    said = _in_short(error)
    if isinstance(error, MemoryError) or _says(error, _SHORT_OF_MEMORY):
        return f"memory: there is not enough ({said}); {_too_large(arguments)}"
    if isinstance(error, OverflowError) or _says(error, _TOO_LARGE):
        return f"a number is too large to compute with ({said}); {_too_large(arguments)}"
    if isinstance(error, RecursionError):
        return f"{_files(arguments)}: is nested too deeply."
    if isinstance(error, UnicodeError):
        return f"{_files(arguments)}: is not text in UTF-8, or cannot be written as such ({said})."
    kind = type(error).__name__
    at = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"this is a bug, please report it: {kind}: {said} ({Path(at.filename).name}, line "
        f"{at.lineno}); {DEBUG}=1 shows where it came from."
    )


def _in_short(error: Exception) -> str:
    """The first line of what an error says: some go on for pages."""
    lines = (" ".join(line.split()).rstrip(".") for line in str(error).splitlines())
    said = next(filter(None, lines), type(error).__name__)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."


def _says(error: Exception, words: Sequence[str]) -> bool:
    return isinstance(error, RuntimeError | TypeError | ValueError) and any(
        word in str(error).lower() for word in words
    )


def _of_files(error: OSError, arguments: Sequence[str]) -> str:
    """An error of the operating system, with the file and how the user named it."""
    what = (error.strerror or _in_short(error)).rstrip(".")
    if error.filename is None:
        if _output_is_lost():
            return f"standard output: {what}."
        outputs = [f"{option} {value}" for option, value in _options(arguments) if option in _OUT]
        return f"{outputs[0]}: {what}." if outputs else f"{what}."
    name = os.fsdecode(error.filename)
    return f"{_typed(name, arguments)}{name}: {what}."


_OUT = ("--out", "--picture")


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What was typed: options with each of their values; the option of a bare argument is empty."""
    option = ""
    for word in arguments:
        if word.startswith("--"):
            option, equals, value = word.partition("=")
            if equals:
                yield option, value
        else:
            yield option, word


def _typed(name: str, arguments: Sequence[str]) -> str:
    """The option by which the user named a file, or a folder around it; empty: there is none."""
    with suppress(OSError, ValueError, RuntimeError):  # (the working directory may be gone)
        path = Path(name).resolve()
        around = [
            (len(folder.parts), option, value)
            for option, value in _options(arguments)
            if option and path.is_relative_to(folder := Path(value).resolve())
        ]
        if around:
            _, option, value = max(around)
            return f"{option}: " if value == name else f"{option} {value}: "
    return ""


def _files(arguments: Sequence[str]) -> str:
    """The files among the arguments, which are what is read."""
    found = [value for _, value in _options(arguments) if os.path.exists(value)]
    return ", ".join(found) or "the input"


def _too_large(arguments: Sequence[str]) -> str:
    """A word on the largest number that was typed."""
    numbers = []
    for option, value in _options(arguments):
        with suppress(ValueError):
            numbers.append((abs(float(value)), f"{option} {value}".strip()))
    large = [text for number, text in sorted(numbers) if number >= 1000]
    return f"is {large[-1]} too large?" if large else "the input is too large for this machine."
