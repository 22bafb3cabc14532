"""One step of training, in however many processes; writes the gradients. Run by test_distributed.

Usage: python ddp.py FOLDER PROCESSES BATCH_SIZE STEPS
"""

import os
import sys
from pathlib import Path

import lightning.pytorch as pl
import torch
from safetensors.torch import save_file

from spacetime_en import build_model
from spacetime_en.data import load_task
from spacetime_en.training import fit
from tests.conftest import TINY


class Gradients(pl.Callback):
    """Writes the gradient of every step, once the processes have agreed on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_before_optimizer_step(self, trainer, module, optimizer):
        found = {n: p.grad for n, p in module.model.named_parameters() if p.grad is not None}
        rank, step = trainer.global_rank, module.progress.step
        save_file(
            {name: grad.clone() for name, grad in found.items()},
            self.folder / f"step-{step}-rank-{rank}.safetensors",
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, processes, size, steps = sys.argv[1], *map(int, sys.argv[2:])
    task = load_task("charged", **TINY)
    torch.manual_seed(0)
    graph, _ = task.train[:1]
    # The paper's SET in small; dropout draws other numbers in every process.
    model = build_model("set", like=graph, hidden=16, dropout=0.0)
    progress = fit(
        model,
        task,
        lr=1e-3,
        batch_size=size,
        steps=steps,
        validate_every=steps,
        accelerator="cpu",
        devices=processes,
        callbacks=[Gradients(Path(folder))],
        display=False,
    )
    if int(os.environ.get("LOCAL_RANK", 0)) == 0:
        (Path(folder) / "best").write_text(repr(progress.best))
