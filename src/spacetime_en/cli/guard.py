"""The guard around all commands: every error ends in one sentence and an exit status.

The sentence goes to standard error and names what the user typed. Nothing slow is imported here,
because the guard also covers the remaining imports.
"""

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from spacetime_en._util.errors import InputError, Interrupted, first_line, printable
from spacetime_en._util.signals import stop_signals

DEBUG = "SPACETIME_EN_DEBUG"  # environment variable: show tracebacks instead of sentences
STOPPED = 130  # exit status of a command that was interrupted
# How NumPy, PyTorch and CUDA report out-of-memory errors that have no class of their own.
_SHORT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc")
_TOO_LARGE = ("overflow", "too large", "too big", "exceeds the limit", "out of range")
_IMPORTING = "<frozen importlib._bootstrap>"


@contextmanager
def guarded(arguments: Sequence[str]) -> Iterator[None]:
    """Run the command ``spacetime ARGUMENTS``; errors, signals, closed pipes end it cleanly."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed: output is discarded
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            # A terminal without é or × shows \xe9 instead of failing.
            stream.reconfigure(errors="backslashreplace")
    try:
        with stop_signals(_stop):
            _check_text(arguments)
            try:
                yield
            finally:
                sys.stdout.flush()  # fails here, if at all, where errors are handled
    except (KeyboardInterrupt, Interrupted) as stop:
        with suppress(OSError):
            print(printable(str(stop)) or "stopped", file=sys.stderr)
        sys.exit(STOPPED)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _output_is_lost():
            sys.exit(1)  # the reader of the output, such as head, has exited
        if os.environ.get(DEBUG):
            raise
        sys.exit(f"error: {printable(_sentence(error, arguments))}")


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, or exit at once during an import, which may swallow exceptions."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            os.write(2, b"stopped\n")
            os._exit(STOPPED)
        frame = frame.f_back
    raise KeyboardInterrupt


def _check_text(arguments: Sequence[str]) -> None:
    """Reject arguments that are not text, or empty: an empty path means the working directory."""
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
    """Whether standard output is closed; if so, redirect it to nowhere."""
    try:
        print(flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


# --- sentences ------------------------------------------------------------------------------------


def _sentence(error: Exception, arguments: Sequence[str]) -> str:
    """The sentence for an error."""
    if isinstance(error, InputError | ImportError):
        return str(error)
    if isinstance(error, OSError):
        return _os_sentence(error, arguments)
    message = first_line(error)
    if isinstance(error, MemoryError) or _mentions(error, _SHORT_OF_MEMORY):
        return f"memory: there is not enough ({message}); {_too_large(arguments)}"
    if isinstance(error, OverflowError) or _mentions(error, _TOO_LARGE):
        return f"a number is too large to compute with ({message}); {_too_large(arguments)}"
    if isinstance(error, RecursionError):
        return f"{_input_files(arguments)}: is nested too deeply."
    if isinstance(error, UnicodeError):
        return f"{_input_files(arguments)}: is not text that UTF-8 can represent ({message})."
    kind = type(error).__name__
    at = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"this is a bug, please report it: {kind}: {message} ({Path(at.filename).name}, line "
        f"{at.lineno}); {DEBUG}=1 shows where it came from."
    )


def _mentions(error: Exception, words: Sequence[str]) -> bool:
    return isinstance(error, RuntimeError | TypeError | ValueError) and any(
        word in str(error).lower() for word in words
    )


def _os_sentence(error: OSError, arguments: Sequence[str]) -> str:
    """The sentence for an operating-system error, with the file as the user named it."""
    what = (error.strerror or first_line(error)).rstrip(".")
    if error.filename is None:
        if _output_is_lost():
            return f"standard output: {what}."
        outputs = [f"{option} {value}" for option, value in _options(arguments) if option in _OUT]
        return f"{outputs[0]}: {what}." if outputs else f"{what}."
    name = os.fsdecode(error.filename)
    return f"{_option_of(name, arguments)}{name}: {what}."


_OUT = ("--out", "--picture")


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of options and their values; the option of a positional argument is empty."""
    option = ""
    for word in arguments:
        if word.startswith("--"):
            option, equals, value = word.partition("=")
            if equals:
                yield option, value
        else:
            yield option, word


def _option_of(name: str, arguments: Sequence[str]) -> str:
    """The option that named a file or a folder containing it, for the sentence; empty if none."""
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


def _input_files(arguments: Sequence[str]) -> str:
    """The existing files among the arguments."""
    files = [value for _, value in _options(arguments) if os.path.exists(value)]
    return ", ".join(files) or "the input"


def _too_large(arguments: Sequence[str]) -> str:
    """A question about the largest number among the arguments."""
    numbers = []
    for option, value in _options(arguments):
        with suppress(ValueError):
            numbers.append((abs(float(value)), f"{option} {value}".strip()))
    large = [text for number, text in sorted(numbers) if number >= 1000]
    return f"is {large[-1]} too large?" if large else "the input is too large for this machine."
