"""What is trained, on what, for how long: the same effort for every model."""

import dataclasses

import pytest
import torch

from spacetime_en._util.errors import InputError
from spacetime_en.nn.presets import build_model
from spacetime_en.reproduce.plan import (
    ABLATION,
    AUDITABLE,
    BASELINES,
    BEYOND,
    BEYOND_DATA,
    MODELS,
    SCALES,
    TABLES,
    Data,
    Experiment,
    plan,
    table,
)
from spacetime_en.training.settings import PAPER

CPU, PAPERS = SCALES["cpu"], SCALES["paper"]


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("zero", [False, True])
def test_every_experiment_comes_once_under_a_name_of_its_own_after_its_trials(scale, zero):
    planned = plan(AUDITABLE if zero else list(TABLES), scale, zero)
    assert len({e.name for e in planned}) == len(set(planned)) == len(planned)
    for place, experiment in enumerate(planned):
        assert set(experiment.trials(scale)) <= set(planned[:place])


def test_the_tables_are_those_of_the_issue():
    seeds = CPU.seeds
    assert len(seeds) == 3
    for name, data in {"baselines": Data(), "noisy": Data(noisy=True)}.items():
        wanted = {Experiment(data, model, seed) for model in BASELINES for seed in seeds}
        assert wanted <= set(table(name, CPU))
    for nodes in (20, 30):
        assert {e.data for e in table(f"n{nodes}", CPU)} == {Data(nodes)}
    assert {e.data.steps_ahead for e in table("horizons", CPU)} == {100, 1000, 3000, 10_000}
    changed = [MODELS[model].settings for model in ABLATION]
    assert {s.get("adjacency") for s in changed} >= {"nodes", "edges", "matrices"}
    assert {"causal": True} in changed
    assert {"spatial": False} in changed
    assert {e.seed for e in table("ablation", CPU) if e.model == "no-spatial"} == {0}
    assert {e.data for e in table("h1000", CPU)} == {Data(steps_ahead=1_000)}
    assert {e.data for e in table("beyond", CPU)} == set(BEYOND_DATA)
    assert {e.model for e in table("beyond", CPU)} == set(BEYOND)


def test_at_cpu_scale_the_papers_models_have_the_same_budget_batch_and_schedule():
    for name in set(TABLES) - {"beyond"}:
        configs = [e.config(CPU, 1e-3) for e in table(name, CPU) if e.model != "linear"]
        alike = [
            dataclasses.replace(c.training, lr=1.0, seed=0, validate_every=None) for c in configs
        ]
        assert len(set(alike)) == 1


def test_all_models_have_the_same_windows_time_and_search_on_a_task():
    """Those beyond the paper, too, also at N = 20 and 30."""
    by_data = {}
    for experiment in (e for name in TABLES for e in table(name, CPU)):
        config = experiment.config(CPU, 1e-3)
        assert by_data.setdefault(experiment.data, config.task) == config.task
        if experiment.model != "linear":
            assert config.training.clock == "cpu"
            assert config.training.max_time == ("5m" if experiment.data.nodes == 5 else "10m")
    assert set(BEYOND_DATA) < set(by_data)
    for model in (*BASELINES, *BEYOND):
        for data in (Data(20), Data(noisy=True), Data(steps_ahead=100)):
            trials = Experiment(data, model).trials(CPU)
            assert [t.rate for t in trials] == list(CPU.rates)
            assert {t.data for t in trials} == {data}


def test_models_beyond_the_paper_train_with_their_own_settings():
    training = Experiment(Data(), "set-2").config(CPU, None).training
    assert (training.lr, training.batch_size, training.ema) == (4e-3, None, 0.998)
    assert Experiment(Data(), "set-flow").config(CPU, None).training.batch_size == 250


def test_the_ablation_has_one_rate_and_no_trials():
    experiments = [e for e in table("ablation", CPU) if MODELS[e.model].trains]
    assert {e.config(CPU, None).training.lr for e in experiments} == {1e-3}
    assert {e.trials(CPU) for e in experiments} == {()}
    assert {e.rate for e in table("ablation", PAPERS)} == {None}  # the paper's


def test_patterns_choose_experiments_with_their_trials():
    names = [e.name for e in plan(["h1000"], CPU, only=["*--egnn--*", "*--set-n*"])]
    tried = [f"trial--n5-h1000--{m}--seed0--rate" for m in ("egnn", "set-narrow")]
    rates = ("0.001", "0.003", "0.01")
    assert names == [
        *(tried[0] + rate for rate in rates),
        "n5-h1000--egnn--seed0",
        *(tried[1] + rate for rate in rates),
        "n5-h1000--set-narrow--seed0",
    ]
    with pytest.raises(InputError, match=r"'n7\*'; their names look like n5-h1000--set--seed0"):
        plan(["h1000"], CPU, only=["n7*"])


def test_architectures_at_cpu_and_paper_scale_are_the_papers():
    counts = {"set": 796_058, "lstm": 826_313, "egnn": 100_612, "mlp": 67_718, "linear": 3}
    counts |= {"set-narrow": 34_388}
    counts |= {"nonequivariant": 796_244, "adjacency-flattened": 810_458, "no-temporal": 796_049}
    for scale in (CPU, PAPERS):
        for model, count in counts.items():
            config = Experiment(Data(), model).config(scale, None)
            with torch.device("meta"):
                built = build_model(config.preset, nodes=5, **config.model)
            assert sum(p.numel() for p in built.parameters()) == count


def test_paper_scale_has_the_papers_rates_batches_and_data():
    for model in BASELINES:
        config = Experiment(Data(), model).config(PAPERS, None)
        for key, value in PAPER[MODELS[model].preset].items():
            assert getattr(config.training, key) == value
        assert config.task["counts"] == (16_000, 2_000, 2_000)
        assert config.task["target_steps"] == 1_000
        assert Experiment(Data(), model).trials(PAPERS) == ()


def test_the_audit_is_one_seed_of_the_same_models_on_zero_targets():
    audited = table("baselines", CPU, zero=True)
    assert [(e.model, e.seed) for e in audited] == [(model, 0) for model in BASELINES]
    assert {e.config(CPU, 1e-3).task["targets"] for e in audited} == {"zero"}
    trials = [trial for e in audited for trial in e.trials(CPU)]
    assert {t.data for t in trials} == {Data()}  # rates are chosen on the true task


def test_tables_that_the_audit_is_not_about_are_refused():
    with pytest.raises(InputError, match="baselines, noisy"):
        table("n20", CPU, zero=True)


def test_an_unknown_table_gets_a_suggestion():
    with pytest.raises(InputError, match="baselines"):
        table("baseline", CPU)
