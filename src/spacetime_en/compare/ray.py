"""Jobs as tasks on a Ray cluster (the extra ``ray``); results go through a shared folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spacetime_en._util.errors import in_short, require
from spacetime_en._util.threads import one_thread

if TYPE_CHECKING:
    from spacetime_en.compare.display import JobDisplay
    from spacetime_en.compare.job import Job


def carry_out_on_ray(
    todo: Sequence[Job], folder: Path, display: JobDisplay
) -> tuple[dict[str, str], float]:
    """Carry out jobs, each as one task with a core (and a GPU, where the cluster has any).

    Joins the cluster that RAY_ADDRESS or ``ray start`` gives, else starts Ray on this machine.

    Returns: an error message for every job that failed, and the processor time of all.
    """
    ray = require("ray", "ray")
    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, configure_logging=False)
    try:
        gpus = 1 if ray.cluster_resources().get("GPU") else 0
        remote: Any = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(_carry_out)
        waiting, unfinished = list(todo), {job.name for job in todo}
        running: dict[Any, Job] = {}
        failed: dict[str, str] = {}
        seconds = 0.0
        while unfinished:
            for job in [job for job in waiting if not unfinished.intersection(job.needs)]:
                waiting.remove(job)
                running[remote.remote(job, str(folder.resolve()))] = job
            (done,), _ = ray.wait(list(running))
            job = running.pop(done)
            try:
                error, word, spent = ray.get(done)
            except ray.exceptions.RayError as died:  # only this job failed: the others continue
                why = str(died).strip().splitlines()[-1:]  # (a traceback precedes it)
                error = word = f"its Ray task died ({''.join(why)}); what is done is kept."
                spent = 0.0
            if error is not None:
                failed[job.name] = error
            seconds += spent
            unfinished.remove(job.name)
            display.done(None, job.label, word)
        return failed, seconds
    finally:
        if started:
            ray.shutdown()


@one_thread()
def _carry_out(job: Job, folder: str) -> tuple[str | None, str, float]:
    """The Ray task. Returns: the error, if any, a summary, and the processor time."""
    import torch

    torch.set_flush_denormal(True)  # (as in local workers)
    begin, error = time.process_time(), None
    try:
        word = job.summary(job.carry_out(Path(folder), lambda *at: None))
    except Exception as wrong:  # a bug in one job must not stop the others
        error = word = in_short(wrong)
    return error, word, time.process_time() - begin
