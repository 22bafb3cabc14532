"""A comparison from the question to the winner: plan, carry out, choose, judge, report."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from spacetime_en._util.errors import InputError, require
from spacetime_en._util.files import (
    inside,
    make_folder,
    refuse_foreign,
    replace_folder,
    write_atomically,
    write_text_atomically,
)
from spacetime_en._util.schema import (
    Count,
    PositiveInt,
    check_no_link,
    checked,
    read_json,
    read_text,
    shortened,
    typed,
)
from spacetime_en._util.trust import remember
from spacetime_en.compare.budget import ModelBudget
from spacetime_en.compare.candidates import Candidate, find_candidates
from spacetime_en.compare.claims import open_claims
from spacetime_en.compare.job import Job
from spacetime_en.compare.judging import Judgement
from spacetime_en.compare.leaderboard import (
    Choice,
    Leaderboard,
    choose,
    groups_of,
    left_out,
    make_leaderboard,
)
from spacetime_en.compare.models import RUNS, SEARCHES, Fit, Question, RateSearch, pace_name
from spacetime_en.compare.options import options_for
from spacetime_en.compare.report import write_comparison
from spacetime_en.compare.results import RESULTS, read_result, written_once
from spacetime_en.compare.workers import carry_out_all, check_workers
from spacetime_en.data.task import Task
from spacetime_en.runs.config import open_task
from spacetime_en.runs.run import FACTS_FILE, Run

QUESTION_FILE, BOARD_FILE, BEST = "comparison.json", "leaderboard.json", "best"
ORIGIN = ".origin"  # the file in the best run that names the run it is a copy of
COMPARED = "compare"  # the folder of a comparison within a run that came from one
QUESTION_FORMAT = 1
OF_TASK = "task."  # before the name of a setting of the task


@dataclass
class _File:
    """The schema of ``comparison.json``."""

    format: int
    token: str
    question: dict[str, Any]
    shared: bool = False  # by machines that agree over a storage who does what


@dataclass(frozen=True)
class Compared:
    """The outcome of a comparison.

    Args:
        folder: of everything.
        leaderboard: of all models that were tested.
        best: the folder of the best model's run.
        report: the HTML report.
    """

    folder: Path
    leaderboard: Leaderboard
    best: Path
    report: Path


@checked
def compare(
    task: Mapping[str, Any],
    out: str | os.PathLike[str],
    presets: Sequence[str] = (),
    *,
    budget: str = "5m",
    seeds: PositiveInt = 3,
    seed: Count = 0,
    workers: int | None = None,
    storage: str | None = None,
    ray: bool = False,
    symmetries: bool = True,
    notify: Callable[[str], None] = lambda _: None,
) -> Compared:
    """Find the best model for a task: fit all candidates, choose by validation, test once.

    Trivial forecasts come first, then models that are solved in closed form, then trained ones,
    each with the same budget and the same search for its learning rate. Call it again to continue
    after an interruption.

    Args:
        task: the section of a config: ``{"name": "charged"}`` or ``{"data": FOLDER}``, and settings
            such as ``"length"``.
        out: folder for everything; the best model's run is its subfolder ``best``.
        presets: names of models, or import paths of your own classes; none: all that fit the data.
        budget: of each trained model, for search, seeds and validation: processor time such as
            ``"5m"``, or ``"600 steps"``.
        seeds: number of trainings of each model.
        seed: the first of their seeds; the others follow it.
        workers: number of processes, one core (or GPU) each; None: one per core or GPU.
        storage: an Optuna storage URL; with it, the same call on several machines that share the
            folder divides the work among them.
        ray: run every training and test as a task on a Ray cluster (the extra ``ray``), all of
            whose machines see `out` and the data.
        symmetries: first test the symmetries of the training and validation windows, and choose
            options accordingly: if rotations hold about one axis only, it becomes the data's up.
        notify: called with what was found, and with why presets are left out.
    """
    folder, begin = Path(out), time.process_time()
    check_workers(workers)
    if ray:
        require("ray", "ray")  # before anything is created
        for name, given in (("workers", workers), ("storage", storage)):
            if given is not None:
                raise InputError(f"{name}: Ray divides the work itself; leave this out.")
        if task.get("data") is not None:  # Ray's processes run in their own folders
            task = {**task, "data": str(Path(task["data"]).resolve())}
    allowance = ModelBudget(budget, seeds)
    refuse_foreign(folder, "comparison", QUESTION_FILE)
    question = Question(dict(task), allowance, seed, storage)
    loaded = open_task(task)  # (never from memory: the data may have changed since)
    if task.get("data") is not None:
        remember(task["data"])
    candidates, reasons = find_candidates(loaded, task, presets)
    claims = open_claims(storage)  # (a wrong URL is rejected before anything is created)
    joined = _join(folder, loaded, question, presets, symmetries)
    said: list[str] = []
    if symmetries:
        options = options_for(folder, loaded)
        up = options.up_for(task)
        augment = options.may_turn(up)
        if up is not None:
            task = {**task, "up": up}
            loaded = open_task(task)
        if up is not None or not augment:
            candidates, reasons = find_candidates(loaded, task, presets, augment=augment)
        said = options.said(candidates, up)
        notify(" ".join(said))
    for preset, reason in reasons.items():
        notify(left_out(preset, reason))
    question = Question(dict(task), allowance, seed, storage, joined.token)
    judgements = _judgements(question, candidates)
    jobs = _jobs(judgements)
    before = {job.name for job in jobs if job.result(folder) is not None}
    if len(before) < len(jobs):  # (finished results may be read by anyone)
        _check_shared(folder, joined.shared, storage is not None)
    taken = None if claims is None else claims.named(joined.token)
    outcome = carry_out_all(jobs, folder, "comparison", workers, taken, ray)
    failed = outcome.failed
    made = [job for job in jobs if job.name not in before]
    if taken is not None:  # work of other machines is not a cost of this session
        made = [job for job in made if job.name in taken.ended]
    anything = any(job.result(folder) is not None for job in made)
    choice = choose(judgements, folder)
    if choice is None:
        raise InputError(f"nothing could be fitted: {next(iter(failed.values()), '')}")
    reasons |= _why(judgements, failed, folder)
    title = f"{loaded.label}: {len(loaded.test):,} test windows, {budget} a model"
    best = _keep_best(folder, choice)
    untested = _why_untested(judgements, choice, folder, failed)
    if untested is not None:
        reasons[choice.preset] = untested
    board = make_leaderboard(title, judgements, choice, groups_of(loaded.test), folder, reasons)
    board = replace(board, symmetries=tuple(said))
    total = time.process_time() - begin + outcome.seconds
    cost = _cost(folder, made, total) if anything else _known_cost(folder)
    report = write_comparison(folder, loaded, board, judgements, cost)
    text = json.dumps({**board.to_json(), "cost": cost}, indent=1, ensure_ascii=False)
    write_text_atomically(folder / BOARD_FILE, text + "\n")
    if untested is not None:  # do not choose another: that would be selection by the test
        raise InputError(
            f"{choice.preset} is the best by validation, and could not be tested: "
            f"{untested.rstrip('.')}; its run is {best}, and the others are in {report}."
        )
    return Compared(folder, board, best, report)


def train_best(task: Mapping[str, Any], out: str | os.PathLike[str], *args: Any, **how: Any) -> Run:
    """Compare models, and leave the run of the best in the folder `out`.

    The comparison is in its subfolder ``compare``. For the arguments see :func:`compare`.
    """
    folder = Path(out)
    refuse_foreign(folder, "run", COMPARED)
    if (folder / FACTS_FILE).exists():
        raise InputError(f"{folder}: is a run already; choose another folder, or delete it.")
    made = compare(task, folder / COMPARED, *args, **how)
    # (The facts come last: they mark the run as complete.)
    parts = [path for path in made.best.iterdir() if path.name != ORIGIN]
    for path in sorted(parts, key=lambda path: path.name == FACTS_FILE):
        target = inside(folder, folder / path.name)
        if path.is_dir():
            shutil.copytree(path, target, dirs_exist_ok=True)
        else:
            write_atomically(target, partial(shutil.copy, path))
    return Run.open(folder)  # (its class is imported, and its data are named)


def _judgements(question: Question, candidates: Sequence[Candidate]) -> list[Judgement]:
    """The tests of all models, each after all trainings of all models."""
    number = question.budget.seeds
    seeds = {
        candidate: tuple(question.seed + k for k in range(number))
        if candidate.kind == "trained"
        else (question.seed,)  # nothing about it is random
        for candidate in candidates
    }
    fits = [Fit(question, c, seed) for c, own in seeds.items() for seed in own]
    names = tuple(dict.fromkeys(name for fit in fits for name in (*fit.needs, fit.name)))
    return [Judgement(question, candidate, own, names) for candidate, own in seeds.items()]


def _jobs(judgements: Sequence[Judgement]) -> list[Job]:
    """All jobs: the cheapest first, and the first seed of all before the second of any."""
    fits = [fit for judgement in judgements for fit in judgement.fits()]
    first = min(fit.seed for fit in fits)
    searches: list[Job] = [RateSearch(f.question, f.candidate) for f in fits if f.needs]
    unique = {job.name: job for job in searches}
    simple = [fit for fit in fits if not fit.needs]
    trained = sorted((fit for fit in fits if fit.needs), key=lambda fit: fit.seed - first)
    return [*simple, *unique.values(), *trained, *judgements]


def _why(
    judgements: Sequence[Judgement], failed: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """The first error of each model that has a failed job."""
    reasons = {}
    for judgement in judgements:
        fits = judgement.fits()
        names = [*(name for fit in fits for name in fit.needs), *(fit.name for fit in fits)]
        wrong = [failed[name] for name in (*names, judgement.name) if name in failed]
        if wrong:
            done = sum(fit.result(folder) is not None for fit in fits)
            some = f"{done} of {len(fits)} seeds: " if 0 < done < len(fits) else ""
            reasons[judgement.candidate.preset] = f"{some}{wrong[0]}"
    return reasons


def _why_untested(
    judgements: Sequence[Judgement], choice: Choice, folder: Path, failed: Mapping[str, str]
) -> str | None:
    """Why the chosen model could not be tested; None if it was."""
    judgement = next(j for j in judgements if j.candidate.preset == choice.preset)
    if judgement.result(folder) is not None:
        return None
    return failed.get(judgement.name, "its test has no result.")


# --- the folder -----------------------------------------------------------------------------------


def _join(
    folder: Path, task: Task, question: Question, presets: Sequence[str], symmetries: bool
) -> _File:
    """Store the question, or check that the folder's is the same."""
    plain = {
        "task": dict(question.task),
        "data": task.fingerprint,
        "presets": sorted(presets),
        "budget": question.budget.text,
        "seeds": question.budget.seeds,
        "seed": question.seed,
        "symmetries": symmetries,
    }
    ours = json.loads(json.dumps(plain, default=str))
    path = folder / QUESTION_FILE
    make_folder(folder)
    for name in (RESULTS, RUNS, SEARCHES, BEST):  # the folder may come from anyone
        check_no_link(folder / name)
    shared = question.storage is not None
    asked = {"token": secrets.token_hex(8), "question": ours, "shared": shared}
    entries = written_once(path, QUESTION_FORMAT, lambda: asked)
    (folder / RESULTS).mkdir(exist_ok=True)  # (after the question, by which the folder is known)
    file: _File = typed(entries, _File, str(path))
    theirs, now = _by_setting(file.question), _by_setting(ours)
    for key in dict.fromkeys((*(key for key in theirs if key.startswith(OF_TASK)), *now)):
        if key not in theirs or key not in now or theirs[key] != now[key]:
            was, is_ = (shortened(q[key]) if key in q else "not given" for q in (theirs, now))
            raise InputError(
                f"{folder}: is another comparison ({key}: {was}, now {is_}); choose another "
                "folder, or ask the same."
            )
    return file


def _check_shared(folder: Path, shared: bool, now: bool) -> None:
    """Refuse to run alongside others if either side would not know of the other."""
    if shared != now:
        begun, instead = ("with", "give the same") if shared else ("without", "leave it out")
        raise InputError(
            f"storage: {folder} was begun {begun} one, and is not finished; {instead}, or choose "
            "another folder."
        )


def _by_setting(question: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a question, with an entry for each setting of the task."""
    task = question.get("task")
    if not isinstance(task, dict):
        return dict(question)
    settings = {f"{OF_TASK}{key}": value for key, value in task.items()}
    return settings | {key: value for key, value in question.items() if key != "task"}


def _keep_best(folder: Path, choice: Choice) -> Path:
    """Copy the chosen run to the folder ``best``, replacing an earlier choice.

    Machines that finish at the same time all do so.
    """
    best = folder / BEST

    def copy(target: Path) -> None:
        for path in (folder / choice.run).rglob("*"):
            check_no_link(path)  # a copy would contain the link's target
        shutil.copytree(folder / choice.run, target, ignore=shutil.ignore_patterns(".*"))
        (target / ORIGIN).write_text(choice.run, "utf-8")

    def is_current() -> bool:
        try:
            return read_text(best / ORIGIN) == choice.run
        except FileNotFoundError:
            return False

    if not is_current():
        replace_folder(best, copy, is_current)
    return best


# --- the cost -------------------------------------------------------------------------------------


def _known_cost(folder: Path) -> dict[str, Any]:
    """The cost of an earlier session that did some work."""
    path = folder / BOARD_FILE
    return dict(read_json(path, dict[str, Any]).get("cost", {})) if path.exists() else {}


def _cost(folder: Path, made: Sequence[Job], total: float) -> dict[str, Any]:
    """The cost of this session, and the fraction not spent on fitting or testing models."""
    fitting = testing = 0.0
    for job in made:
        result = read_result(folder, job.name)
        if result is None and isinstance(job, RateSearch):  # it failed, but still took time
            pace = read_result(folder, pace_name(job.candidate))
            fitting += 0.0 if pace is None else pace["spent"]
        elif result is not None:
            key = "sitting_seconds" if "sitting_seconds" in result else "seconds"
            fitting += result.get(key, 0.0)
            testing += result.get("testing_seconds", 0.0)
    return {
        "processor_seconds": total,
        "fitting_seconds": fitting,
        "testing_seconds": testing,
        "overhead": 1 - (fitting + testing) / total if total else 0.0,
    }
