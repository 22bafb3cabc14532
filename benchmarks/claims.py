"""Self-checking claims: the numbers in the README and the docs, claimed against found.

    python -m benchmarks.claims                  # `make claims`: everything, in minutes
    python -m benchmarks.claims --stored         # only stored results, in a second
    python -m benchmarks.claims --only demo-set  # only what comes from these sources

``docs/claims.toml`` lists them, with the format at its top. A claim quotes its page, with every
claimed number in braces, and names the source of each: stored results, or commands that print JSON
and are run here, in a separate folder. A number holds if it differs from the found value by no more
than rounding explains, or than the stated spread. The exit status is 1 if a number does not hold,
a page no longer contains the quotation, or a command fails.
"""

import argparse
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from spacetime_en import InputError

ROOT = Path(__file__).parent.parent
FILE = ROOT / "docs" / "claims.toml"
WEIGHTS = "src/spacetime_en/weights/*/README.md"
STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "sd": statistics.stdev,
    "se": lambda values: statistics.stdev(values) / math.sqrt(len(values)),
    "min": min,
    "max": max,
    **{f"#{place}": lambda values, place=place: values[place] for place in range(9)},
}
SPREAD = r"|any|x\d+(\.\d+)?|\d+(\.\d+)? %"


class UncheckedError(Exception):
    """A source cannot be evaluated on this machine, and why."""


@dataclass(frozen=True)
class Source:
    """A source of numbers: files of stored results, or commands of which the last prints JSON.

    Args:
        name: as used by claims.
        stored: the files, as a pattern; several files are, for instance, several seeds.
        run: the commands, in sequence.
        at: the place in the JSON that claims refer to; keys are joined by points.
        needs: environment variables and packages without which the commands cannot run.
    """

    name: str
    stored: str = ""
    run: tuple[str, ...] = ()
    at: str = ""
    needs: tuple[str, ...] = ()

    def documents(self, workshop: "Workshop") -> list[Any]:
        """Its JSON: one document per file, or that of the commands."""
        if self.stored:
            paths = sorted(ROOT.glob(self.stored))
            if not paths:
                raise InputError(f"{self.name}: there is no {self.stored}.")
            return [json.loads(path.read_text()) for path in paths]
        for need in self.needs:
            if not (os.environ.get(need) if need.isupper() else find_spec(need)):
                raise UncheckedError(f"{need} is not {'set' if need.isupper() else 'installed'}")
        printed = [workshop.run(command) for command in self.run]
        return [json.loads(printed[-1])]


@dataclass
class Workshop:
    """A folder in which commands are run, each once; without a folder none is run."""

    folder: Path | None = None
    printed: dict[str, str] = field(default_factory=dict)

    def run(self, command: str) -> str:
        """The output of a command whose first word is ``spacetime`` or ``python``."""
        if self.folder is None:
            raise UncheckedError("takes longer than a second")
        if command not in self.printed:
            print(f"$ {command}", file=sys.stderr, flush=True)
            begin = time.monotonic()
            program, *words = shlex.split(command)
            words = ["-m", "spacetime_en", *words] if program == "spacetime" else words
            path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
            done = subprocess.run(
                [sys.executable, *words],
                cwd=self.folder,
                env=os.environ | {"PYTHONPATH": path},
                capture_output=True,
                text=True,
            )
            if done.returncode:
                raise UncheckedError(f"failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
            print(f"  {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
            self.printed[command] = done.stdout
        return self.printed[command]


@dataclass(frozen=True)
class Claim:
    """Some numbers stated on a page.

    Args:
        page: the page, relative to the repository.
        says: the quotation, its claimed numbers in braces.
        sources: for each number the name of its source; "": it was not kept, see `by`.
        find: for each number its place in the source.
        take: for each number how to combine several files (see `STATISTICS`).
        spread: for each number how far the found value may be from it: "" (rounding), "5 %",
            "x3" (a factor) or "any" (shown, not judged).
        by: the command that produced numbers that were not kept.
    """

    page: str
    says: str
    sources: tuple[str, ...]
    find: tuple[str, ...]
    take: tuple[str, ...]
    spread: tuple[str, ...]
    by: str

    @cached_property
    def quotation(self) -> str:
        return plain(re.sub(r"\{([^{}]*)\}", r"\1", self.says))

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        return tuple(re.findall(r"\{([^{}]*)\}", self.says))


@dataclass(frozen=True)
class Verdict:
    """The outcome of a claim; numbers that were not checked have a reason instead."""

    claim: Claim
    found: tuple[float | str, ...]
    outside: tuple[int, ...]  # numbers that do not hold
    missing: str = ""  # where else the quotation is, if not on its page

    @property
    def word(self) -> Literal["ok", "OUTSIDE", "NOT SAID", "FAILED", "not checked"]:
        if self.missing:
            return "NOT SAID"
        if any(isinstance(one, str) and one.startswith("failed: ") for one in self.found):
            return "FAILED"
        if self.outside:
            return "OUTSIDE"
        both = zip(self.found, self.claim.spread, strict=True)
        checked = any(isinstance(one, float) and spread != "any" for one, spread in both)
        return "ok" if checked else "not checked"


def read_claims(path: Path | None = None) -> tuple[dict[str, Source], list[Claim]]:
    """The sources and the claims of a file, by default the repository's."""
    path = path or FILE
    content = tomllib.loads(path.read_text())
    sources = {}
    for name, table in content["source"].items():
        lists = {key: tuple(table.pop(key, ())) for key in ("run", "needs")}
        sources[name] = Source(name, **table, **lists)
        if bool(sources[name].stored) == bool(sources[name].run):
            raise InputError(f"{path}: source {name}: expected either stored or run.")
    claims = []
    for table in content["claim"]:
        says = " ".join(table["says"].split())
        count = len(re.findall(r"\{[^{}]*\}", says))
        each = {
            key: _for_each(table.get(key, default), count, f"{path}: {key} of {says!r}")
            for key, default in (("from", ""), ("find", ""), ("take", "mean"), ("spread", ""))
        }
        unknown = {name for name in each["from"] if name} - set(sources)
        if unknown or not count or ("" in each["from"] and "by" not in table):
            raise InputError(
                f"{path}: {says!r}: expected numbers in braces, and of each a source that is "
                f"listed, or else `by`; unknown: {', '.join(unknown) or 'none'}."
            )
        if any(not re.fullmatch(SPREAD, one) for one in each["spread"]):
            raise InputError(f"{path}: {says!r}: spread: expected 5 %, x3, any or nothing.")
        claims.append(Claim(table["page"], says, *each.values(), by=table.get("by", "")))
    return sources, claims


def _for_each(given: str | list[str], count: int, what: str) -> tuple[str, ...]:
    """One word per number: the same for all of them, or a list."""
    words = (given,) * count if isinstance(given, str) else tuple(given)
    if len(words) != count:
        raise InputError(f"{what}: expected {count} of them, found {len(words)}.")
    return words


@cache
def plain(text: str) -> str:
    """Page text without emphasis, and with single spaces."""
    return " ".join(text.replace("**", "").replace("*", "").split())


def look_up(document: Any, path: str) -> float:
    """The number at a path of keys and, in lists, of indices or ``key=value`` of an element."""
    found = [document]
    for step in filter(None, path.split(".")):
        found = [inner for outer in found for inner in _steps(outer, step)]
    if len(found) != 1 or isinstance(found[0], (dict, list)):
        raise InputError(f"{path}: expected one number, found {len(found)}.")
    return float(found[0])


def _steps(outer: Any, step: str) -> Iterator[Any]:
    if isinstance(outer, dict):
        if step in outer:
            yield outer[step]
    elif isinstance(outer, list) and "=" not in step:
        yield outer[int(step)]
    elif isinstance(outer, list):
        wanted = [part.split("=", 1) for part in step.split("&")]
        yield from (one for one in outer if all(str(one.get(key)) == is_ for key, is_ in wanted))


def value(text: str) -> float:
    """Parse a number as written on a page: 796,058 or 1.8e-5 or − 0.987."""
    return float(text.replace(",", "").replace(" ", "").replace("−", "-"))


def within(found: float, said: str, spread: str) -> bool:
    """Whether the found value is close enough to the stated one."""
    mantissa, _, exponent = said.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    away, rounding = abs(found - value(said)), 0.5 * 10.0 ** (int(exponent or 0) - decimals)
    if spread == "any":
        return True
    if spread.startswith("x"):
        return abs(math.log(found / value(said))) <= math.log(float(spread[1:])) + 1e-9
    share = float(spread[:-1]) / 100 if spread else 0.0
    return away <= share * abs(value(said)) + rounding * (1 + 1e-6)


@cache
def pages() -> dict[str, str]:
    """The README, the docs, and the pages of the weights, verbatim."""
    paths = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob(WEIGHTS)]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(paths)}


def judge(claim: Claim, sources: dict[str, Source], workshop: Workshop) -> Verdict:
    """Look for the quotation and for every number."""
    where = [page for page in pages() if claim.quotation in plain(pages()[page])]
    missing = "" if claim.page in where else f"is said by {', '.join(where) or 'no page'}"
    found: list[float | str] = []
    outside = []
    for place, said in enumerate(claim.numbers):
        name = claim.sources[place]
        try:
            if not name:
                raise UncheckedError("not kept")
            source = sources[name]
            path = f"{source.at}.{claim.find[place]}"
            values = [look_up(document, path) for document in source.documents(workshop)]
            found.append(STATISTICS[claim.take[place]](values))
        except UncheckedError as reason:
            found.append(str(reason))
            continue
        if not within(float(found[-1]), said, claim.spread[place]):
            outside.append(place)
    return Verdict(claim, tuple(found), tuple(outside), missing)


def unclaimed(claims: Iterable[Claim], page: str) -> list[str]:
    """The rows of a page's tables with decimal numbers that no claim quotes."""
    quoted = [claim.quotation for claim in claims if claim.page == page]
    rows = re.findall(r"^\|.*\d\.\d.*\|$", pages()[page], re.M)
    return [row for row in rows if not any(one in plain(row) for one in quoted)]


def show(verdict: Verdict) -> str:
    """Format a claim: what it says, and what was found."""
    claim = verdict.claim
    said = claim.numbers
    found = [f"{one:.3g}" if isinstance(one, float) else "-" for one in verdict.found]
    for place, one in enumerate(verdict.found):
        if isinstance(one, float) and one == int(one):
            found[place] = f"{int(one):,}"
    cells = (said, found, [spread or "=" for spread in claim.spread])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for row in cells
    ]
    lines = [f"{verdict.word:12}{claim.page}: {claim.quotation[:60]}"]
    if verdict.missing:
        lines.append(f"            the quotation {verdict.missing}")
    lines += [f"    said    {rows[0]}", f"    found   {rows[1]}"]
    reasons = sorted({one for one in verdict.found if isinstance(one, str)})
    if any(claim.spread):
        lines.append(f"    spread  {rows[2]}")
    if reasons:
        how = f": {claim.by}" if "not kept" in reasons and claim.by else ""
        lines.append(f"    -       {'; '.join(reasons)}{how}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the claims, print them, and say whether all hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("--stored", action="store_true", help="run no commands")
    parser.add_argument("--only", nargs="+", metavar="SOURCE", help="only claims from these")
    chosen = parser.parse_args(arguments)
    sources, claims = read_claims()
    if chosen.only:
        claims = [claim for claim in claims if set(chosen.only) & set(claim.sources)]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="claims-") as folder:
        workshop = Workshop(None if chosen.stored else Path(folder))
        verdicts = []
        for claim in claims:
            verdicts.append(judge(claim, sources, workshop))
            print(show(verdicts[-1]), flush=True)
    words = [verdict.word for verdict in verdicts]
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    print(f"\n{len(claims)} claims in {time.monotonic() - begin:.0f} s: {counts}")
    return int(bool({"OUTSIDE", "NOT SAID", "FAILED"} & set(words)))


if __name__ == "__main__":
    sys.exit(main())
