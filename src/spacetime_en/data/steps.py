"""Target times in frame intervals after the last frame: one, or several along a path."""

from __future__ import annotations

import re
from itertools import pairwise

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import shortened

MOST_TARGETS = 10_000
FURTHEST_TARGET = 2**53
_NUMBER = r"[0-9]{1,15}(?:e[0-9])?"  # YAML reads 1e3 as text
# 12, [1, 2, 4], or as text, as on the command line: "12", "1..12", "1,2,4".
TargetSteps = int | tuple[int, ...] | str


def parse_steps(target_steps: TargetSteps) -> tuple[int, ...]:
    """The frame intervals from the last frame to each target, (T,), increasing."""
    if isinstance(target_steps, str):
        steps = tuple(_parse(target_steps))
    else:
        steps = target_steps if isinstance(target_steps, tuple) else (target_steps,)
    increasing = all(a < b for a, b in pairwise(steps))
    if not (steps and increasing and 1 <= steps[0] <= steps[-1] <= FURTHEST_TARGET):
        raise _error(target_steps)
    return steps


def _parse(text: str) -> list[int]:
    steps: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(rf"\s*({_NUMBER})\s*(?:\.\.\s*({_NUMBER})\s*)?", part)
        if found is None:
            raise _error(text)
        first, last = int(float(found[1])), int(float(found[2] or found[1]))
        if last - first >= MOST_TARGETS:
            raise InputError(
                f"target_steps: expected at most {MOST_TARGETS} targets, found {shortened(text)}."
            )
        steps += range(first, last + 1)
    return steps


def _error(found: object) -> InputError:
    return InputError(
        "target_steps: expected increasing numbers of frame intervals after the last frame, such "
        f"as 12, 1..12 or 1,2,4, found {shortened(found)}."
    )
