"""Several processes together compute what one does alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.integration.commands import TASK, finish, start

SCRIPT = Path(__file__).with_name("ddp.py")


def gradients(folder, cache, *arguments, launcher=()):
    folder.mkdir()
    environment = {
        **os.environ,
        "SPACETIME_EN_CACHE": str(cache),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(SCRIPT.parents[2]),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    command = [sys.executable, *launcher, str(SCRIPT), str(folder), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return {path.stem: load_file(path) for path in folder.glob("*.safetensors")}


@pytest.mark.parametrize(
    "launcher", [pytest.param("lightning", marks=pytest.mark.slow), "torchrun"]
)
def test_the_gradient_of_two_processes_is_that_of_one(tmp_path, cache, tiny_task, launcher):
    """40 windows in batches of 13: parts of 7 and 6, and a last batch of 1 for two processes."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    alone = gradients(tmp_path / "one", cache, 1, 13, 4)
    both = gradients(
        tmp_path / "two", cache, 2, 13, 4, launcher=torchrun if launcher == "torchrun" else ()
    )
    assert set(alone) == {f"step-{k}-rank-0" for k in range(4)}
    assert set(both) == {f"step-{k}-rank-{r}" for k in range(4) for r in range(2)}
    for step in range(4):
        one, *two = alone[f"step-{step}-rank-0"], *(both[f"step-{step}-rank-{r}"] for r in (0, 1))
        size = max(float(grad.abs().max()) for grad in one.values())
        assert size > 0
        for other in two:
            # (DDP gives zeros, where one process leaves nothing, to weights without a gradient.)
            assert set(one) <= set(other)
            for name, grad in other.items():
                expected = one.get(name, torch.zeros_like(grad))
                torch.testing.assert_close(grad, expected, rtol=1e-4, atol=1e-5 * size)
    errors = [float((tmp_path / name / "best").read_text()) for name in ("one", "two")]
    assert errors[0] == pytest.approx(errors[1], rel=1e-4)  # validation is over all windows


@pytest.mark.slow
def test_the_command_line_in_two_processes(tmp_path, cache, tiny_task):
    run = tmp_path / "run"
    process = start(
        *("train", "set", *TASK, "--model.hidden", "8", "--model.blocks", "2"),
        *("--steps", "4", "--batch-size", "16", "--devices", "2", "--accelerator", "cpu"),
        *("--out", str(run)),
        cache=cache,
        env={"GLOO_SOCKET_IFNAME": "lo"},
    )
    assert "best at step" in finish(process)
    assert (run / "model" / "model.safetensors").is_file()
