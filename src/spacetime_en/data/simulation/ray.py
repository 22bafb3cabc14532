"""Shards of a simulation on a Ray cluster (the extra ``ray``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spacetime_en._util.errors import require
from spacetime_en.data.shards import find_shards

if TYPE_CHECKING:
    from spacetime_en.data.simulation.simulator import Progress, _Simulation


def write_shards(run: _Simulation, folder: Path, count: int, progress: Progress | None) -> None:
    """Write all shards, one Ray task each; `folder` must be visible to every worker.

    Joins the cluster given by RAY_ADDRESS or ``ray start``, else starts Ray on this machine.
    """
    ray = require("ray", "ray")
    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, configure_logging=False)
    try:
        workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        # Enough shards to keep all workers busy, but an unfinished set keeps its number.
        if not find_shards(folder):
            count = max(count, min(workers, run.num))
        remote: Any = ray.remote(_write)
        pending = [remote.remote(run, str(folder.resolve()), i, count) for i in range(count)]
        while pending:
            done, pending = ray.wait(pending)
            finished = sum(ray.get(done))
            if progress:
                progress(finished)
    finally:
        if started:
            ray.shutdown()


def _write(run: _Simulation, folder: str, i: int, n: int) -> int:
    import numba

    numba.set_num_threads(1)  # Ray allots one core per task
    run.write(Path(folder), i, n)
    return len(run.span(i, n))
