"""The one training module of every model: loss, optimiser step, validation."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import Logger
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from spacetime_en._util.errors import InputError
from spacetime_en.data.task import Task
from spacetime_en.metrics import errors
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.models.trivial import LastFrame
from spacetime_en.training.batches import Batch, Batches, derive_seed
from spacetime_en.training.settings import Budget, TrainingSettings
from spacetime_en.training.state import DivergenceError, TrainingProgress, TrainingState

DIVERGED = 1e4  # times the first loss


class ForecastModule(pl.LightningModule):
    """Trains any model on any task.

    What Lightning calls an epoch is here the stretch of steps from one validation to the next.

    Args:
        model: what to train.
        task: what on.
        settings: how.
        state: where to go on; None: from the start.
        loggers: Lightning's; the module writes to them itself, by the step of the whole training.
    """

    def __init__(
        self,
        model: Forecaster,
        task: Task,
        settings: TrainingSettings,
        state: TrainingState | None = None,
        loggers: Sequence[Logger] = (),
    ) -> None:
        super().__init__()
        if not any(p.requires_grad for p in model.parameters()):
            raise InputError(
                f"model: {type(model).__name__} has nothing to train; use it as it is."
            )
        self.model, self.task, self.settings = model.train(), task, settings
        self.averaged: AveragedModel | None = None
        if settings.ema is not None:
            self.averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(settings.ema))
            self.averaged.requires_grad_(False)
        self.batches_per_epoch = -(-len(task.train) // settings.batch_size)
        self.budget = Budget.of(settings, self.batches_per_epoch)
        self.validate_every = settings.validate_every or self.batches_per_epoch
        self.progress = TrainingProgress()
        self.last_loss = float("nan")
        self.validation: dict[str, float] = {}
        self._blown_up = False  # this step, which is then left out
        self._final = True  # whether forecasts are made as they will be in the end
        self.improved = False  # whether the last validation was the best
        self.asked_to_stop = False  # this process, by a signal
        self.all_asked_to_stop = False  # any of the processes, as all know
        self.sinks: list[Logger] = list(loggers)
        self._sums = torch.zeros(3, dtype=torch.float64)
        self._optimiser_state: dict[str, Tensor] = {}
        self._now = time.process_time if settings.clock == "cpu" else time.monotonic
        self._clock = self._now()
        if state is not None:
            self._restore(state)

    # --- the loss -------------------------------------------------------------------------------

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        # The mean over the whole batch, once the processes' gradients are averaged.
        loss = self.model.losses(batch.graph, batch.target, self.settings.alpha)
        loss = loss.sum() * batch.weight
        # Numbers that all processes have in common: they stop together, if they must.
        asked = loss.new_tensor(float(self.asked_to_stop))
        common = self.trainer.strategy.reduce(torch.stack([loss.detach(), asked]), reduce_op="mean")
        self.last_loss, any_asked = common.tolist()
        self.all_asked_to_stop = any_asked > 0
        if self.progress.first_loss is None:
            self.progress.first_loss = self._yardstick(batch)
        limit = DIVERGED * (self.progress.first_loss or math.inf)
        self._blown_up = not (math.isfinite(self.last_loss) and self.last_loss <= limit)
        if self._blown_up and self.progress.skipped_in_a_row >= self.settings.skip:
            raise self._diverged(f"the loss is {self.last_loss:.3g}")
        return loss

    def _yardstick(self, batch: Batch) -> float | None:
        """What "last frame" loses on the first batch, which the model itself may blow up on.

        None for a loss of the model's own, whose size means nothing to us, and if nothing moves.
        """
        if type(self.model).losses is not Forecaster.losses:
            return None
        mask, alpha = batch.graph.node_mask, self.settings.alpha
        still = self.model.distance(LastFrame()(batch.graph), batch.target, mask, alpha)
        common = self.trainer.strategy.reduce(still.sum() * batch.weight, reduce_op="mean")
        return float(common) or abs(self.last_loss)

    # --- the optimiser --------------------------------------------------------------------------

    def configure_optimizers(self) -> torch.optim.Optimizer:
        s = self.settings
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[s.optimiser]
        optimiser: torch.optim.Optimizer = kind(
            self.model.parameters(), lr=s.lr, weight_decay=s.weight_decay
        )
        if self._optimiser_state:
            moments: dict[int, dict[str, Tensor]] = {}
            for name, tensor in self._optimiser_state.items():
                index, key = name.split("/")
                moments.setdefault(int(index), {})[key] = tensor
            groups = optimiser.state_dict()["param_groups"]
            optimiser.load_state_dict({"state": moments, "param_groups": groups})
        return optimiser

    def on_train_start(self) -> None:
        self._clock = self._now() - self.progress.time

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self._batch = batch
        # Dropout draws from here: the same numbers whether or not the run was ever interrupted.
        _seed(derive_seed(self.settings.seed, self.progress.step, self.global_rank), self.device)
        self._final = self.model.set_progress(self.used)
        if self.averaged is not None:
            self.averaged.module.set_progress(self.used)  # type: ignore[operator]
        optimiser = self.optimizers()
        assert isinstance(optimiser, torch.optim.Optimizer)
        for group in optimiser.param_groups:
            group["lr"] = self.settings.lr * self.budget.factor(self.used)

    def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        limit = float("inf") if self.settings.clip is None else self.settings.clip
        norm = nn.utils.clip_grad_norm_(parameters, limit)
        # (In half precision the scaler skips steps with infinite gradients by itself.)
        scaled = self.settings.precision == "16-mixed"
        bad_gradient = not scaled and not norm.isfinite()
        if bad_gradient and self.progress.skipped_in_a_row >= self.settings.skip:
            raise self._diverged("a gradient is NaN or infinite")
        self._blown_up = self._blown_up or bad_gradient
        if self._blown_up:  # the optimiser passes over what has no gradient
            for parameter in parameters:
                parameter.grad = None

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        if self.averaged is not None:
            self.averaged.update_parameters(self.model)
        self.progress.step += 1
        self.progress.skipped += self._blown_up
        in_a_row = self.progress.skipped_in_a_row
        self.progress.skipped_in_a_row = in_a_row + 1 if self._blown_up else 0
        self._tick()
        if self.progress.step % 10 == 0:
            self._log(
                {"loss": self.last_loss, "lr": self.settings.lr * self.budget.factor(self.used)}
            )
        if self.used >= 1:
            self.trainer.should_stop = True

    @property
    def used(self) -> float:
        """The share of the budget that is used."""
        return self.budget.used(self.progress.step, self.progress.time)

    def _tick(self) -> None:
        """All processes go by the first one's clock, or their learning rates would part."""
        now = self._now() - self._clock
        self.progress.time = self.trainer.strategy.broadcast(now) if self.budget.time else now

    def _diverged(self, what: str) -> DivergenceError:
        step, rows = self.progress.step, self._batch.rows.tolist()
        s = self.settings
        return DivergenceError(
            f"training: at step {step} (epoch {step // self.batches_per_epoch}), on the training "
            f"windows {', '.join(map(str, rows[:5]))}{', ...' if len(rows) > 5 else ''}, {what}; "
            f"lower lr (now {s.lr:g}), or clip (now {s.clip}), or add warmup (now {s.warmup:g}), "
            f"or let more steps be skipped (skip, now {s.skip}).",
            rows,
        )

    # --- validation -----------------------------------------------------------------------------

    @property
    def validated(self) -> nn.Module:
        """The model whose forecasts count."""
        return self.model if self.averaged is None else self.averaged.module

    def on_validation_epoch_start(self) -> None:
        self._sums.zero_()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        x, v = errors(self.validated(batch.graph), batch.target, batch.graph.node_mask)
        if batch.weight:
            count = torch.tensor(float(len(x)))
            self._sums += torch.stack([x.sum().cpu(), v.sum().cpu(), count]).double()

    def on_validation_epoch_end(self) -> None:
        total: Any = self._sums
        if self.trainer.world_size > 1:
            total = self.trainer.strategy.reduce(total.to(self.device), reduce_op="sum")
        position, velocity, count = total.tolist()
        self._tick()
        self.validation = {"position_mse": position / count, "velocity_mse": velocity / count}
        if not math.isfinite(position + velocity):
            if not self.settings.skip or (self.used >= 1 and math.isinf(self.progress.best)):
                raise self._diverged("then forecasts for validation windows are NaN or infinite")
            self.validation = dict.fromkeys(self.validation, math.inf)
        # (What is not made as in the end yet never beats what is.)
        error, best = self.validation["position_mse"], self.progress.best
        provisional = math.isinf(best) or not self.progress.best_is_final
        self.improved = math.isfinite(error) and (not self._final, error) < (provisional, best)
        if self.improved:
            self.progress.best_is_final = self._final
            self.progress.best = self.validation["position_mse"]
            self.progress.best_step = self.progress.step
        self._log({f"val_{name}": value for name, value in self.validation.items()}, flush=True)

    def _log(self, values: dict[str, float], flush: bool = False) -> None:
        """To all loggers. One that fails, on a full disk say, does not take the training along."""
        if not self.trainer.is_global_zero:
            return
        for logger in list(self.sinks):
            try:
                logger.log_metrics(values, step=self.progress.step)
                if flush:
                    logger.save()
            except OSError as error:
                self.sinks.remove(logger)
                print(
                    f"warning: {type(logger).__name__} cannot write ({error}); training goes on "
                    "without it.",
                    file=sys.stderr,
                )

    # --- data -----------------------------------------------------------------------------------

    def train_dataloader(self) -> Batches:
        """The steps up to the next validation."""
        start = self.progress.step
        stop = (start // self.validate_every + 1) * self.validate_every
        stop = stop if self.budget.steps is None else min(stop, self.budget.steps)
        return Batches(
            self.task.train,
            self.settings.batch_size,
            seed=self.settings.seed,
            start=start,
            stop=stop,
            rank=self.trainer.global_rank,
            world=self.trainer.world_size,
        )

    def val_dataloader(self) -> Batches:
        return Batches(
            self.task.val,
            self.settings.batch_size,
            rank=self.trainer.global_rank,
            world=self.trainer.world_size,
        )

    def transfer_batch_to_device(
        self, batch: Batch, device: torch.device, dataloader_idx: int
    ) -> Batch:
        return batch.to(device, next(self.model.parameters()).dtype)

    # --- state ----------------------------------------------------------------------------------

    def state(self) -> TrainingState:
        """All that is needed to go on from here; the tensors are copies on the CPU."""
        averaged = {} if self.averaged is None else _copied(self.averaged.module.state_dict())
        moments: dict[str, Tensor] = {}
        if self._trainer is not None and self.trainer.optimizers:
            for index, tensors in self.trainer.optimizers[0].state_dict()["state"].items():
                moments |= {f"{index}/{key}": tensor for key, tensor in tensors.items()}
        return TrainingState(
            TrainingProgress(**vars(self.progress)),
            _copied(self.model.state_dict()),
            averaged,
            _copied(moments),
        )

    def _restore(self, state: TrainingState) -> None:
        self.progress = TrainingProgress(**vars(state.progress))
        dtype = next(w.dtype for w in state.weights.values() if w.is_floating_point())
        self.to(dtype)  # the training may have been in double precision
        self.model.load_state_dict(state.weights)
        if self.averaged is not None:
            self.averaged.module.load_state_dict(state.averaged)
            self.averaged.n_averaged.fill_(self.progress.step)
        self._optimiser_state = state.optimiser


def _seed(number: int, device: torch.device) -> None:
    """``torch.manual_seed`` for the devices in use; it formats stack traces for all others."""
    torch.default_generator.manual_seed(number)
    if device.type in ("cuda", "mps"):
        getattr(torch, device.type).manual_seed(number)


def _copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
