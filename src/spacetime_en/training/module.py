"""The Lightning module that trains every model: loss, optimiser step, validation."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import Logger
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from spacetime_en._util.errors import InputError
from spacetime_en.data.task import Task
from spacetime_en.data.windows import Windows
from spacetime_en.metrics import errors
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.models.trivial import LastFrame
from spacetime_en.training.augmentation import augmented
from spacetime_en.training.batches import Batch, Batches, derive_seed
from spacetime_en.training.jitter import jittered, typical_step
from spacetime_en.training.settings import Budget, TrainingSettings
from spacetime_en.training.state import DivergenceError, TrainingProgress, TrainingState

DIVERGED = 1e4  # a loss this many times the reference loss counts as divergence

MEASURED = 2_000  # windows from which the typical step is estimated
# Standard errors by which a correction must improve on its base before it replaces it: on few
# validation windows, a few lucky ones would do otherwise.
CLEAR = 2.0


class ForecastModule(pl.LightningModule):
    """Trains any model on any task.

    An epoch, to Lightning, is here the steps from one validation to the next.

    Args:
        model: the model to train.
        task: the training and validation windows.
        settings: how to train.
        state: where to continue; None: from the beginning.
        loggers: Lightning loggers; the module writes to them directly, because Lightning would
            count steps from the start of this session.
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
            self.averaged = AveragedModel(model, multi_avg_fn=_moving_average(settings.ema))
            self.averaged.requires_grad_(False)
        self.batches_per_epoch = -(-len(task.train) // settings.batch)
        self.budget = Budget.from_settings(settings, self.batches_per_epoch)
        self.validate_every = settings.validate_every or self.batches_per_epoch
        facts = model.trained_on
        self.jitter = 0.0  # in the data's unit of length
        if settings.jitter and facts is not None and not facts.measured_velocities:
            self.jitter = settings.jitter * typical_step(task.train.sample(MEASURED)[0])
        self.progress = TrainingProgress()
        self.last_loss = float("nan")
        self.validation: dict[str, float] = {}
        self._step_diverged = False  # then the step is skipped
        self._is_final = True  # whether the model forecasts as it will at the end of training
        self.improved = False  # whether the last validation was the best so far
        self.stop_requested = False  # by a signal to this process
        self.any_stop_requested = False  # by a signal to any process; the same in all of them
        self.active_loggers: list[Logger] = list(loggers)
        self._sums = torch.zeros(5, dtype=torch.float64)
        self._optimiser_state: dict[str, Tensor] = {}
        self._now = settings.now
        self._start = self._now()
        if state is not None:
            self._restore(state)

    # --- the loss -------------------------------------------------------------------------------

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        # The mean over the whole batch, once the gradients of all processes are averaged.
        graph, target = batch.graph, batch.target
        if self.settings.augment:
            graph, target = augmented(graph, target)
        graph = jittered(graph, self.jitter) if self.jitter else graph
        loss = self.model.losses(graph, target, self.settings.alpha)
        if not loss.requires_grad:  # such as SET without its spatial part
            raise InputError("model: no parameter influences its forecast; nothing can be trained.")
        loss = loss.sum() * batch.weight
        # Reduced over all processes, so that they stop together.
        stop = loss.new_tensor(float(self.stop_requested))
        reduced = self.trainer.strategy.reduce(torch.stack([loss.detach(), stop]), reduce_op="mean")
        self.last_loss, stopping = reduced.tolist()
        self.any_stop_requested = stopping > 0
        if self.progress.first_loss is None:
            self.progress.first_loss = self._reference_loss(batch)
        limit = DIVERGED * (self.progress.first_loss or math.inf)
        self._step_diverged = not (math.isfinite(self.last_loss) and self.last_loss <= limit)
        if self._step_diverged and self.progress.skipped_in_a_row >= self.settings.skip:
            raise self._diverged(f"the loss is {self.last_loss:.3g}")
        return loss

    def _reference_loss(self, batch: Batch) -> float | None:
        """The loss of the last-frame forecast on the first batch; the model's own may diverge.

        None if the model defines its own loss, whose scale is unknown.
        """
        if type(self.model).losses is not Forecaster.losses:
            return None
        losses = self.model.distance(LastFrame()(batch.graph), batch.target, self.settings.alpha)
        loss = self.trainer.strategy.reduce(losses.sum() * batch.weight, reduce_op="mean")
        return float(loss) or abs(self.last_loss)  # (0 if nothing moves)

    # --- the optimiser --------------------------------------------------------------------------

    def configure_optimizers(self) -> torch.optim.Optimizer:
        s = self.settings
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[s.optimiser]
        optimiser: torch.optim.Optimizer = kind(
            self.model.parameters(),
            lr=s.lr,
            weight_decay=s.weight_decay,
            fused=self.device.type in ("cpu", "cuda"),  # one operator instead of ten per parameter
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
        self._start = self._now() - self.progress.time
        if self.model.corrects_base and self.progress.step == 0 and math.isinf(self.progress.best):
            self._validate_start()

    def _validate_start(self) -> None:
        """Validate the initial weights, whose correction to the base is zero: they may be best."""
        self._set_progress()
        self.trainer.validating = True
        self.trainer.fit_loop.epoch_loop.val_loop.run()
        self.trainer.training = True
        if self.used >= 1:
            self.trainer.should_stop = True

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self._batch = batch
        # For dropout and augmentation: the same random numbers whether or not the run was ever
        # interrupted.
        _seed(derive_seed(self.settings.seed, self.progress.step, self.global_rank), self.device)
        self._set_progress()
        optimiser = self.optimizers()
        assert isinstance(optimiser, torch.optim.Optimizer)
        for group in optimiser.param_groups:
            group["lr"] = self.lr

    def _set_progress(self) -> None:
        """Tell the model what fraction of the budget is used."""
        self._is_final = self.model.set_progress(self.used)
        if self.averaged is not None:
            self.averaged.module.set_progress(self.used)  # type: ignore[operator]

    def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        limit = float("inf") if self.settings.clip is None else self.settings.clip
        norm = nn.utils.clip_grad_norm_(parameters, limit)
        # (In half precision the scaler skips steps with infinite gradients by itself.)
        scaled = self.settings.precision == "16-mixed"
        bad_gradient = not scaled and not norm.isfinite()
        if bad_gradient and self.progress.skipped_in_a_row >= self.settings.skip:
            raise self._diverged("a gradient is NaN or infinite")
        self._step_diverged = self._step_diverged or bad_gradient
        if self._step_diverged:  # without gradients the optimiser does nothing
            for parameter in parameters:
                parameter.grad = None

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        if self.averaged is not None:
            self.averaged.update_parameters(self.model)
        self.progress.step += 1
        self.progress.skipped += self._step_diverged
        in_a_row = self.progress.skipped_in_a_row
        self.progress.skipped_in_a_row = in_a_row + 1 if self._step_diverged else 0
        self._update_time()
        if self.progress.step % 10 == 0:
            self._log({"loss": self.last_loss, "lr": self.lr})
        if self.used >= 1:
            self.trainer.should_stop = True

    @property
    def used(self) -> float:
        """The fraction of the budget used."""
        return self.budget.used(self.progress.step, self.progress.time)

    @property
    def lr(self) -> float:
        """The learning rate at this point of the budget."""
        return self.settings.lr * self.budget.lr_factor(self.used)

    def _update_time(self) -> None:
        """Use the first process's time in all processes: the learning rate depends on it."""
        now = self._now() - self._start
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
            self.progress,
        )

    # --- validation -----------------------------------------------------------------------------

    @property
    def forecasting_model(self) -> nn.Module:
        """The model to validate and to forecast with: the one of averaged weights, if any."""
        return self.model if self.averaged is None else self.averaged.module

    def on_validation_epoch_start(self) -> None:
        self._sums.zero_()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        x, v = errors(self.forecasting_model(batch.graph), batch.target)
        gain = torch.zeros_like(x)
        if self._base_leads:
            gain = errors(self.model.base(batch.graph), batch.target)[0] - x  # type: ignore[operator]
        if batch.weight:
            gain = gain.cpu().double()  # (squares of squares: planets in metres, atoms in metres)
            count = torch.tensor(float(len(x)))
            sums = x.sum().cpu(), v.sum().cpu(), count, gain.sum(), gain.square().sum()
            self._sums += torch.stack([of.double() for of in sums])

    @property
    def _base_leads(self) -> bool:
        """Whether the initial weights, which correct nothing, are the best so far."""
        is_first = self.progress.best_step == 0 and math.isfinite(self.progress.best)
        return self.model.corrects_base and is_first

    def on_validation_epoch_end(self) -> None:
        total: Any = self._sums
        if self.trainer.world_size > 1:
            total = self.trainer.strategy.reduce(total.to(self.device), reduce_op="sum")
        position, velocity, count, gain, square = total.tolist()
        self._update_time()
        self.validation = {"position_mse": position / count, "velocity_mse": velocity / count}
        if not math.isfinite(position + velocity):
            last = self.used >= 1 and math.isinf(self.progress.best)
            if self.progress.step and (last or not self.settings.skip):  # (a base may not fit)
                raise self._diverged("forecasts for validation windows became NaN or infinite")
            self.validation = dict.fromkeys(self.validation, math.inf)
        # (A provisional model never replaces one that forecasts as it will at the end of training.)
        error, best = self.validation["position_mse"], self.progress.best
        provisional = math.isinf(best) or not self.progress.best_is_final
        self.improved = math.isfinite(error) and (not self._is_final, error) < (provisional, best)
        if self._base_leads and self.improved:
            variance = max(square - gain * gain / count, 0.0) / max(count - 1, 1)
            self.improved = gain / count > CLEAR * math.sqrt(variance / count)
        if self.improved:
            self.progress.best_is_final = self._is_final
            self.progress.best = self.validation["position_mse"]
            self.progress.best_step = self.progress.step
        self._log({f"val_{name}": value for name, value in self.validation.items()}, flush=True)

    def _log(self, values: dict[str, float], flush: bool = False) -> None:
        """Write to all loggers; one that fails, as on a full disk, is dropped with a warning."""
        if not self.trainer.is_global_zero:
            return
        for logger in list(self.active_loggers):
            try:
                logger.log_metrics(values, step=self.progress.step)
                if flush:
                    logger.save()
            except OSError as error:
                self.active_loggers.remove(logger)
                print(
                    f"warning: {type(logger).__name__} cannot write ({error}); training goes on "
                    "without it.",
                    file=sys.stderr,
                )

    # --- data -----------------------------------------------------------------------------------

    def train_dataloader(self) -> Batches:
        """The batches up to the next validation."""
        start = self.progress.step
        stop = (start // self.validate_every + 1) * self.validate_every
        stop = stop if self.budget.steps is None else min(stop, self.budget.steps)
        return self._batches(self.task.train, seed=self.settings.seed, start=start, stop=stop)

    def val_dataloader(self) -> Batches:
        return self._batches(self.task.val)

    def _batches(self, windows: Windows, **order: Any) -> Batches:
        rank, world = self.trainer.global_rank, self.trainer.world_size
        return Batches(windows, self.settings.batch, rank=rank, world=world, **order)

    def transfer_batch_to_device(
        self, batch: Batch, device: torch.device, dataloader_idx: int
    ) -> Batch:
        return batch.to(device, next(self.model.parameters()).dtype)

    # --- state ----------------------------------------------------------------------------------

    def state(self) -> TrainingState:
        """Everything needed to continue from here; the tensors are copies on the CPU."""
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


def _moving_average(decay: float) -> Callable[[Any, Any, Any], None]:
    """An exponential moving average with a shorter window in the first steps, see ``ema``."""

    def update(averaged: Any, current: Any, steps: Any) -> None:
        step = int(steps)
        now = min(decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(now)(averaged, current, steps)

    return update


def _seed(number: int, device: torch.device) -> None:
    """``torch.manual_seed`` for the device in use; seeding all devices takes milliseconds."""
    torch.default_generator.manual_seed(number)
    if device.type in ("cuda", "mps"):
        getattr(torch, device.type).manual_seed(number)


def _copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
