"""The experiments behind the paper's tables and figures: models, data, budgets, seeds.

A plan is a list of :class:`Experiment`; nothing here trains or writes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from spacetime_en._util.errors import InputError, no_such
from spacetime_en.nn.presets import arguments_of, find_preset
from spacetime_en.runs.config import Config
from spacetime_en.training.settings import PAPER, TrainingSettings, preset_defaults

ScaleName = Literal["quick", "cpu", "paper"]
H = 10_000  # simulation steps from the last frame to the target, as in the paper
STEPS = 10  # simulation steps between frames, a frame interval
# On targets as distant as the true ones, the paper's networks blow up on single batches early in
# training: |x_i - x_j|^2 feeds the next layer, six times over. Such steps are skipped.
SKIP = 20
HORIZONS = (100, 1_000, 3_000, H)


@dataclass(frozen=True)
class ComparedModel:
    """A model in a row of a table.

    Args:
        label: its printed name.
        preset: its preset.
        settings: those that differ from the preset's.
        trains: whether any parameter affects the forecast.
    """

    label: str
    preset: str
    settings: dict[str, Any] = field(default_factory=dict)
    trains: bool = True


# Models beyond the paper, trained with the settings of their presets: one line each.
BEYOND = {
    "set-flow": ComparedModel("SET-Flow", "set-flow"),
    "set-2": ComparedModel("SET-2", "set-2"),
    "estag": ComparedModel("ESTAG", "estag"),
    "tfn": ComparedModel("TFN", "tfn"),
    "se3-transformer": ComparedModel("SE(3)-Transformer", "se3-transformer"),
    "hnn-pairs": ComparedModel("HNN of pairs", "hnn-pairs"),
    "hnn": ComparedModel("HNN", "hnn"),
    "lnn": ComparedModel("LNN", "lnn"),
    "segno": ComparedModel("SEGNO", "segno"),
    "transformer": ComparedModel("transformer, rotated windows", "transformer"),
}
BASELINES = ("set", "lstm", "egnn", "mlp", "linear")
NARROW = ("set-narrow", "egnn-narrow")  # the paper's architectures, of other widths
MODELS = {
    "set": ComparedModel("SET", "set"),
    "lstm": ComparedModel("LSTM", "lstm"),
    "egnn": ComparedModel("EGNN", "egnn"),
    "mlp": ComparedModel("MLP", "mlp"),
    "linear": ComparedModel("Linear", "linear"),
    "set-narrow": ComparedModel("SET, hidden 32, 2 blocks", "set", {"hidden": 32, "blocks": 2}),
    "egnn-narrow": ComparedModel("EGNN, hidden 32", "egnn", {"hidden": 32}),
    "nonequivariant": ComparedModel("not equivariant", "set-nonequivariant"),
    "adjacency-flattened": ComparedModel("adjacency, flattened", "set-adjacency"),
    "adjacency-nodes": ComparedModel("adjacency, over nodes", "set", {"adjacency": "nodes"}),
    "adjacency-edges": ComparedModel("adjacency, per edge", "set", {"adjacency": "edges"}),
    "adjacency-matrices": ComparedModel("adjacency, by matrices", "set", {"adjacency": "matrices"}),
    "no-temporal": ComparedModel("no temporal attention", "set-no-temporal"),
    "causal": ComparedModel("causal", "set", {"causal": True}),
    "encoding-w": ComparedModel("encoding of time on features (W)", "set", {"encodings": "W"}),
    "encodings": ComparedModel("all four encodings (WXYZ)", "set", {"encodings": "WXYZ"}),
    "no-spatial": ComparedModel("no spatial attention", "set", {"spatial": False}, trains=False),
    **BEYOND,
}
ABLATION = tuple(
    name for name in MODELS if name == "set" or name not in (*BASELINES, *NARROW, *BEYOND)
)


@dataclass(frozen=True)
class Data:
    """A task of the paper: number of particles, horizon, with or without noise.

    Args:
        nodes: N.
        steps_ahead: simulation steps from the last frame to the target.
        noisy: noise of variance 0.5 on all observations, targets included.
        zero: the audit's targets, all zero.
    """

    nodes: int = 5
    steps_ahead: int = H
    noisy: bool = False
    zero: bool = False

    @property
    def name(self) -> str:
        """A short name, for file names."""
        words = [f"n{self.nodes}", f"h{self.steps_ahead}"]
        return "-".join(words + ["noisy"] * self.noisy + ["zero"] * self.zero)

    @property
    def title(self) -> str:
        """A title for readers."""
        return f"N = {self.nodes}, H = {self.steps_ahead:,}" + ", noisy" * self.noisy

    def task(self, scale: Scale) -> dict[str, Any]:
        """The task's settings."""
        return {
            "name": "charged-noisy" if self.noisy else "charged",
            "nodes": self.nodes,
            "target_steps": self.steps_ahead // STEPS,
            "counts": scale.counts(self.nodes),
            "targets": "zero" if self.zero else "observed",
        }


@dataclass(frozen=True)
class Scale:
    """The size of data and training budgets.

    Args:
        name: quick, cpu or paper.
        what: a description for the report.
        seeds: of the trainings at N = 5; at N = 20 and 30 only the first is used.
        trajectories: for training, validation and test; (N = 5, larger N).
        batch: batch sizes (N = 5, larger N); None for the paper's, by model.
        budget: training settings (N = 5, larger N).
        rates: learning rates to choose from; empty for the paper's.
        common_rate: of all trainings of the ablation; None for the paper's.
        search: training settings of a learning-rate trial.
        linear: training settings of the linear model, which has only three parameters.
        validate_every: steps between validations at N = 5, by model; a quarter of it for larger N.
        size: settings for smaller models, for the models that have them.
    """

    name: ScaleName
    what: str
    seeds: tuple[int, ...]
    trajectories: tuple[tuple[int, int, int], tuple[int, int, int]]
    batch: tuple[int, int] | None
    budget: tuple[dict[str, Any], dict[str, Any]]
    rates: tuple[float, ...] = ()
    common_rate: float | None = None
    search: dict[str, Any] = field(default_factory=dict)
    linear: dict[str, Any] = field(default_factory=dict)
    validate_every: dict[str, int] = field(default_factory=dict)
    size: dict[str, Any] = field(default_factory=dict)

    def counts(self, nodes: int) -> tuple[int, int, int]:
        """The number of trajectories for training, validation and test."""
        return self.trajectories[nodes > 5]

    def training(self, model: str, nodes: int, seed: int) -> TrainingSettings:
        """The training settings of a model, before its learning rate is chosen."""
        large = nodes > 5
        settings = self._beyond(model) if model in BEYOND else self._papers(model, large)
        budget = self.budget[large] | (self.linear if model == "linear" else {})
        return TrainingSettings(**settings | budget | {"seed": seed, "devices": 1})

    def _papers(self, model: str, large: bool) -> dict[str, Any]:
        preset = MODELS[model].preset
        settings: dict[str, Any] = dict(PAPER.get(preset, {}))
        if self.rates:  # a short budget: the same schedule for every model
            settings |= {"schedule": "cosine", "warmup": 0.05, "weight_decay": 0.0, "skip": SKIP}
        if self.batch is not None:
            settings["batch_size"] = self.batch[large]
        every = self.validate_every.get(preset, self.validate_every.get("set"))
        if every is not None:
            settings["validate_every"] = max(1, every // 4) if large else every
        return settings

    def _beyond(self, model: str) -> dict[str, Any]:
        return preset_defaults(MODELS[model].preset, None, "ours").training

    def model(self, model: str) -> dict[str, Any]:
        """The settings of a model that differ from its preset's."""
        compared = MODELS[model]
        ours = preset_defaults(compared.preset, None, "ours").model if model in BEYOND else {}
        known = arguments_of(find_preset(compared.preset).model)
        size = {name: value for name, value in self.size.items() if name in known}
        return ours | size | compared.settings


SCALES: dict[ScaleName, Scale] = {
    "quick": Scale(
        "quick",
        "a test of the code, with tiny models trained for a few steps; its numbers mean nothing",
        seeds=(0, 1),
        trajectories=((64, 16, 24), (32, 8, 16)),
        batch=(16, 8),
        budget=({"steps": 6}, {"steps": 3}),
        rates=(1e-3, 3e-3),
        common_rate=1e-3,
        search={"steps": 2},
        validate_every={"set": 3},
        size={"hidden": 8, "blocks": 2, "steps": 2, "step_fraction": None},
    ),
    "cpu": Scale(
        "cpu",
        "every model trains for the same time on one core: 5 minutes at N = 5, 10 minutes at "
        "N = 20 and 30 (processor time, so that other work on the machine takes nothing from it); "
        "the three numbers of Linear have 30 seconds",
        seeds=(0, 1, 2),
        trajectories=((16_000, 2_000, 2_000), (16_000, 200, 2_000)),
        batch=(32, 8),
        budget=({"max_time": "5m", "clock": "cpu"}, {"max_time": "10m", "clock": "cpu"}),
        rates=(1e-3, 3e-3, 1e-2),
        common_rate=1e-3,
        search={"max_time": "100s", "clock": "cpu"},
        linear={"max_time": "30s"},
        validate_every={"set": 250, "egnn": 1_000, "mlp": 5_000, "linear": 2_000},
    ),
    "paper": Scale(
        "paper",
        "the paper's data, batches and learning rates, 1,000 epochs (the paper gives no number), "
        "on a GPU",
        seeds=(0, 1, 2),
        trajectories=((16_000, 2_000, 2_000), (16_000, 2_000, 2_000)),
        batch=None,
        budget=({"epochs": 1_000, "skip": SKIP}, {"epochs": 1_000, "skip": SKIP}),
    ),
}


@dataclass(frozen=True)
class Experiment:
    """One training run and its test.

    Args:
        data: the task to train and test on.
        model: a key of ``MODELS``.
        seed: of the weights and the order of the windows.
        rate: the learning rate; None for the best of the scale's, as chosen by trials.
        trial: whether this is such a trial, which is shorter and not tested.
    """

    data: Data
    model: str
    seed: int = 0
    rate: float | None = None
    trial: bool = False

    @property
    def name(self) -> str:
        """The stem of its file names."""
        words = [self.data.name, self.model, f"seed{self.seed}"]
        words += [f"rate{self.rate:g}"] if self.rate is not None else []
        return "--".join(["trial"] * self.trial + words)

    def trials(self, scale: Scale) -> tuple[Experiment, ...]:
        """The learning-rate trials that it depends on, on its own task.

        (Those of the audit have true targets: at N = 5 on the paper's task.)
        """
        if self.rate is not None or not MODELS[self.model].trains:
            return ()
        data = Data() if self.data.zero else self.data
        return tuple(
            Experiment(data, self.model, scale.seeds[0], rate, trial=True) for rate in scale.rates
        )

    def config(self, scale: Scale, rate: float | None) -> Config:
        """The config; `rate` is the learning rate chosen by the trials, if any."""
        model = MODELS[self.model]
        training = scale.training(self.model, self.data.nodes, self.seed)
        if self.trial:
            short = scale.linear if self.model == "linear" else {}
            training = dataclasses.replace(training, **scale.search | short)
        chosen = self.rate if rate is None else rate
        if chosen is not None:
            training = dataclasses.replace(training, lr=chosen)
        return Config(model.preset, scale.model(self.model), self.data.task(scale), training)


def _of(data: Sequence[Data], models: Iterable[str], seeds: Sequence[int]) -> Iterator[Experiment]:
    return (
        Experiment(d, model, seed)
        for d in data
        for seed in seeds
        for model in models
        if MODELS[model].trains or seed == seeds[0]  # without training, seeds make no difference
    )


def _baselines(scale: Scale) -> Iterator[Experiment]:
    yield from _of([Data()], BASELINES, scale.seeds)
    if scale.rates:  # the paper's rates, too, along with the chosen ones
        for model in BASELINES:
            yield Experiment(Data(), model, scale.seeds[0], PAPER[MODELS[model].preset]["lr"])


def _ablation(scale: Scale) -> Iterator[Experiment]:
    for experiment in _of([Data()], ABLATION, scale.seeds):
        rate = scale.common_rate if MODELS[experiment.model].trains else None
        yield dataclasses.replace(experiment, rate=rate)


AT_1000 = Data(steps_ahead=1_000)
BEYOND_DATA = (AT_1000, Data(), Data(noisy=True), Data(20), Data(30))


def _beyond(scale: Scale) -> Iterator[Experiment]:
    for data in BEYOND_DATA:  # with as many seeds as the paper's models
        several = data.nodes == 5 and data.steps_ahead == H
        yield from _of([data], BEYOND, scale.seeds if several else scale.seeds[:1])


TABLES: dict[str, Callable[[Scale], Iterable[Experiment]]] = {
    "baselines": _baselines,
    "horizons": lambda scale: _of(
        [Data(steps_ahead=h) for h in HORIZONS], BASELINES, scale.seeds[:1]
    ),
    "h1000": lambda scale: _of([AT_1000], (*BASELINES, *NARROW), scale.seeds[:1]),
    "n20": lambda scale: _of([Data(20)], BASELINES, scale.seeds[:1]),
    "n30": lambda scale: _of([Data(30)], BASELINES, scale.seeds[:1]),
    "noisy": lambda scale: _of([Data(noisy=True)], BASELINES, scale.seeds),
    "ablation": _ablation,
    "beyond": _beyond,
}
TITLES = {
    "baselines": "Baselines, N = 5",
    "horizons": "Error against the horizon, N = 5",
    "horizons-velocity": "Error of the velocity against the horizon, N = 5",
    "h1000": "H = 1,000, N = 5",
    "n20": "N = 20",
    "n30": "N = 30",
    "noisy": "Noisy observations, N = 5",
    "ablation": "Ablation, N = 5",
    "beyond": "Beyond the paper",
    "published": "The published figures",
}
AUDITED = "published"  # the table of the audit, with zero targets
AUDITABLE = ("baselines", "noisy")


def table(name: str, scale: Scale, zero: bool = False) -> list[Experiment]:
    """The experiments of a table; with `zero`, those of its audit, one seed each."""
    if name not in (AUDITABLE if zero else TABLES):
        raise no_such("table", name, AUDITABLE if zero else TABLES)
    experiments = list(TABLES[name](scale))
    if not zero:
        return experiments
    return [
        dataclasses.replace(e, data=dataclasses.replace(e.data, zero=True))
        for e in experiments
        if e.seed == scale.seeds[0] and e.rate is None
    ]


def plan(
    names: Sequence[str], scale: Scale, zero: bool = False, only: Sequence[str] = ()
) -> list[Experiment]:
    """The experiments of some tables, without duplicates and after the trials they depend on.

    The first seed of every experiment comes before the second of any, so that a full report is
    available early. `only` selects the experiments whose names match one of its patterns, such as
    ``n5-h1000--*``.
    """
    experiments = [experiment for name in names for experiment in table(name, scale, zero)]
    for pattern in only:
        if not any(fnmatchcase(experiment.name, pattern) for experiment in experiments):
            raise InputError(
                f"only: no experiment of these tables is called {pattern!r}; their names look like "
                f"{experiments[0].name}, and * stands for any text."
            )
    if only:
        experiments = [e for e in experiments if any(fnmatchcase(e.name, p) for p in only)]
    ordered: dict[Experiment, None] = {}
    for experiment in sorted(experiments, key=lambda e: scale.seeds.index(e.seed)):
        ordered |= dict.fromkeys((*experiment.trials(scale), experiment))
    return list(ordered)
