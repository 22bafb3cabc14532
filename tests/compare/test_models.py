"""Training jobs: the preset's own rate is tried, and an interrupted search resumes."""

import optuna
import pytest

from spacetime_en import InputError
from spacetime_en.compare import models, trained
from spacetime_en.compare.budget import TRIALS, ModelBudget
from spacetime_en.compare.candidates import Candidate
from spacetime_en.compare.judging import Judgement
from spacetime_en.compare.models import Fit, Question, RateSearch
from spacetime_en.compare.results import read_result, write_result
from spacetime_en.runs.run import Run
from spacetime_en.runs.study import open_storage
from spacetime_en.training.settings import PRESET_SETTINGS
from spacetime_en.training.state import DivergenceError
from tests.compare.inline import TASK


@pytest.fixture
def question(monkeypatch, cache):
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))
    return Question(TASK, ModelBudget("60 steps", 2), token="token")


LINEAR = Candidate("linear", "trained", 3)


def nothing(*how):
    pass


def study_of(folder):
    storage = open_storage(None, folder / "searches" / "linear")
    return optuna.load_study(study_name="token--linear", storage=storage)


def test_rates_around_the_presets_own_are_tried_and_the_best_is_used(question, tmp_path):
    job = RateSearch(question, LINEAR)
    found = job.carry_out(tmp_path, nothing)
    rates = [trial["lr"] for trial in found["trials"]]
    own = PRESET_SETTINGS["linear"]["lr"]
    assert len(rates) == TRIALS
    assert {own, 3 * own, own / 3} <= set(rates)
    assert all(own / 10 <= rate <= 10 * own for rate in rates)
    errors = [trial["val_mse"] for trial in found["trials"]]
    assert errors == sorted(errors)
    assert job.result(tmp_path)["trials"][0]["lr"] == pytest.approx(rates[0], rel=1e-5)
    fit = Fit(question, LINEAR, seed=1)
    assert fit.needs == (job.name,)
    made = fit.carry_out(tmp_path, nothing)
    settings = made["settings"]["training"]
    assert settings["lr"] == pytest.approx(rates[0], rel=1e-5)
    assert (settings["seed"], settings["steps"]) == (1, 21)
    assert made["training"]["val_mse"] == min(mse for _, mse in made["training"]["curve"])


def test_a_trial_that_was_interrupted_is_repeated_with_its_rate(question, tmp_path):
    job = RateSearch(question, LINEAR)
    whole = job.carry_out(tmp_path, nothing)
    own = PRESET_SETTINGS["linear"]["lr"]
    other = tmp_path / "other"
    (other / "searches").mkdir(parents=True)
    calls = []

    def interrupt(*how):
        calls.append(how)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.carry_out(other, interrupt)  # after the first trial
    study = study_of(other)
    trial = study.ask()  # as of a process that was killed in its second
    trial.set_user_attr("worker", "")
    study.tell(trial, state=optuna.trial.TrialState.FAIL)
    again = job.carry_out(other, nothing)
    rates = {trial["lr"] for trial in again["trials"]}
    assert {own, 3 * own} <= rates
    assert {t["lr"] for t in whole["trials"]} & rates >= {own, 3 * own}


@pytest.mark.parametrize("after", range(1, TRIALS))
def test_a_search_that_was_interrupted_tries_what_an_uninterrupted_one_does(
    question, tmp_path, after
):
    job, calls = RateSearch(question, LINEAR), []

    def interrupt(*how):
        calls.append(how)
        if len(calls) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.carry_out(tmp_path / "other", interrupt)
    # As of a process that was killed in the next trial:
    study = study_of(tmp_path / "other")
    study.tell(study.ask(), state=optuna.trial.TrialState.FAIL)
    whole, again = (job.carry_out(tmp_path / name, nothing) for name in ("whole", "other"))
    assert again["trials"] == whole["trials"]
    assert len(again["trials"]) == TRIALS


def test_the_cost_of_a_search_is_that_of_all_its_sittings(question, tmp_path):
    def interrupt(*how):
        raise KeyboardInterrupt

    job = RateSearch(question, LINEAR)
    with pytest.raises(KeyboardInterrupt):
        job.carry_out(tmp_path, interrupt)
    study = study_of(tmp_path)
    assert study.trials[0].user_attrs["seconds"] > 0
    trial = study.ask()  # as of an earlier session
    trial.set_user_attr("seconds", 1e6)
    study.tell(trial, state=optuna.trial.TrialState.FAIL)
    made = job.carry_out(tmp_path, nothing)
    assert made["seconds"] == pytest.approx(1e6, rel=1e-3)
    assert made["seconds"] > 1e6 > made["sitting_seconds"]


def test_of_rates_that_do_equally_well_the_presets_own_is_used(question, tmp_path, monkeypatch):
    """As with a base that no rate improves on."""
    own = PRESET_SETTINGS["linear"]["lr"]
    equal = [({"lr": 3 * own}, 0.5), ({"lr": own}, 0.5), ({"lr": own / 3}, 0.5)]
    monkeypatch.setattr(models, "search", lambda *how, **more: None)
    monkeypatch.setattr(models, "tried", lambda **how: equal)
    monkeypatch.setattr(models, "seconds_spent", lambda **how: 0.0)
    found = RateSearch(question, LINEAR).carry_out(tmp_path, nothing)
    assert [trial["lr"] for trial in found["trials"]] == [own, own / 3, 3 * own]


def test_a_model_that_diverges_at_every_rate_is_a_sentence(question, tmp_path, monkeypatch):
    def diverges(*how, **more):
        raise DivergenceError("training: the loss is nan.", [], None)

    monkeypatch.setattr("spacetime_en.runs.search.fit", diverges)
    for _ in range(2):
        with pytest.raises(InputError, match=r"^its training diverged at every learning rate that"):
            RateSearch(question, LINEAR).carry_out(tmp_path, nothing)


def test_without_a_search_there_is_no_training(question, tmp_path):
    with pytest.raises(InputError, match="its learning rate is not known"):
        Fit(question, LINEAR, 0).carry_out(tmp_path, nothing)


def test_import_paths_are_shown_as_the_user_gave_them(question):
    own = Candidate("own.models:Wild", "trained", 3)
    jobs = (RateSearch(question, own), Fit(question, own, 1), Judgement(question, own, (1,), ()))
    names = ["search--own.models:Wild", "own.models:Wild--seed1", "test--own.models:Wild"]
    assert [job.label for job in jobs] == names


def test_no_time_for_a_search_means_the_presets_own_rate(question, tmp_path):
    pace = {"setup": 0.0, "step": 9.0, "validation": 9.0, "spent": 0.0}
    slow = Question(TASK, ModelBudget("2m", 1), token="token")
    write_result(tmp_path, "pace--linear", pace)
    job = RateSearch(slow, LINEAR)
    found = job.carry_out(tmp_path, nothing)
    assert found["trials"] == [{"lr": PRESET_SETTINGS["linear"]["lr"], "val_mse": None}]
    assert "no time to try others" in job.summary(found)
    (config,) = Fit(slow, LINEAR, 0)._configs(slow.load_task(), tmp_path)
    assert (config.training.max_time, config.training.clock) == ("106.500s", "cpu")


def test_what_has_nothing_to_train_is_a_run_all_the_same(question, tmp_path, tiny_task):
    fit = Fit(question, Candidate("straight-line", "trivial", 0), 0)
    made = fit.carry_out(tmp_path, nothing)
    assert fit.needs == ()
    assert made["training"]["val_mse"] > 0
    assert fit.result(tmp_path) == read_result(tmp_path, fit.name)
    assert (tmp_path / made["run"] / "model").is_dir()


@pytest.fixture
def trivial(question, tmp_path):
    """A fitted model, and the folder of the comparison."""
    fit = Fit(question, Candidate("straight-line", "trivial", 0), 0)
    return fit, fit.carry_out(tmp_path / "x", nothing), tmp_path / "x"


@pytest.mark.parametrize("where", ["../other", "absolute", "runs/last-frame--seed0", "runs/.."])
def test_a_result_cannot_name_a_run_elsewhere(trivial, where):
    fit, made, folder = trivial
    run = str(folder / made["run"]) if where == "absolute" else where
    write_result(folder, fit.name, made | {"run": run})
    with pytest.raises(InputError, match=r"straight-line--seed0.json: its run cannot be"):
        fit.result(folder)


def test_a_link_in_the_place_of_a_run_is_not_followed(trivial, tmp_path):
    fit, made, folder = trivial
    (folder / made["run"]).rename(tmp_path / "elsewhere")
    (folder / made["run"]).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link out of"):
        fit.result(folder)
    with pytest.raises(InputError, match="is a link out of"):
        fit.carry_out(folder, nothing)


def test_the_config_of_a_run_has_no_class_imported(trivial, tmp_path, monkeypatch):
    fit, made, folder = trivial
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planted.py").write_text("raise SystemExit('it was imported')")
    config = folder / made["run"] / "config.yaml"
    config.write_text(config.read_text().replace("straight-line", "planted.Model"))
    with pytest.raises(InputError, match=r"planted\.Model' is no part of this package"):
        fit.model(folder, made)


@pytest.mark.parametrize("wrong", [{"run": 7}, {"training": {}}, {"settings": []}])
def test_wrong_types_in_a_result_are_one_sentence(trivial, wrong):
    fit, made, folder = trivial
    write_result(folder, fit.name, made | wrong)
    with pytest.raises(InputError, match=r"straight-line--seed0.json: is no result"):
        fit.result(folder)


def test_the_cost_of_a_training_is_that_of_all_its_sittings(question, tmp_path, monkeypatch):
    real = models.train_first_that_converges

    def long_before(*how):
        run, config, training = real(*how)
        return run, config, training | {"seconds": 1e6}

    monkeypatch.setattr(models, "train_first_that_converges", long_before)
    made = Fit(question, Candidate("ridge-shared", "solved", 3), 0).carry_out(tmp_path, nothing)
    assert made["seconds"] == 1e6
    assert made["sitting_seconds"] < 1e6


@pytest.fixture
def diverging(question, tmp_path, monkeypatch):
    """The folder of a comparison in which a model's best rate diverges after 15 of 21 steps."""
    trials = [{"lr": 1.0, "val_mse": 0.1}, {"lr": 1e-3, "val_mse": 0.2}]
    searched = {"trials": trials, "pace": None, "seconds": 1.0}
    write_result(tmp_path, RateSearch(question, LINEAR).name, searched)
    real = trained.train

    def wild(config, folder, **how):
        if config.training.lr == 1.0:
            folder.mkdir(parents=True)
            (folder / "diverged.json").write_text('{"step": 15, "seconds": 1e6}')
            raise InputError("training: the loss is nan.")
        return real(config, folder, **how)

    monkeypatch.setattr(trained, "train", wild)
    return tmp_path


def test_a_seed_that_diverges_goes_on_with_what_is_left_of_its_budget(question, diverging):
    made = Fit(question, LINEAR, 0).carry_out(diverging, nothing)
    assert made["training"]["diverged_at"] == [1.0]
    assert made["training"]["steps"] == made["settings"]["training"]["steps"] == 6
    assert made["seconds"] == pytest.approx(1e6, rel=1e-3)


def test_a_network_that_adds_nothing_to_its_base_is_noted(question, tmp_path, monkeypatch):
    set2, real = Candidate("set-2", "trained", 9), models.train_first_that_converges
    trials = [{"lr": 1e-3, "val_mse": 0.1}]
    write_result(tmp_path, "search--set-2", {"trials": trials, "pace": None, "seconds": 1.0})
    made = []
    for seed, best_step in ((0, 7), (1, 0)):

        def ended(*how, best=best_step):
            run, config, training = real(*how)
            return run, config, training | {"best_step": best}

        monkeypatch.setattr(models, "train_first_that_converges", ended)
        made.append(Fit(question, set2, seed).carry_out(tmp_path, nothing))
    assert "only_base" not in made[0]["training"]
    base = Run.open(tmp_path / made[1]["run"]).model().base_name
    assert made[1]["training"]["only_base"] == base is not None


def test_a_seed_that_diverges_at_every_rate_is_a_sentence(question, diverging):
    job = RateSearch(question, LINEAR)
    searched = job.result(diverging)
    write_result(diverging, job.name, searched | {"trials": searched["trials"][:1]})
    for _ in range(2):
        with pytest.raises(
            InputError, match=r"diverged at every .* delete .*linear--seed0\* to try"
        ):
            Fit(question, LINEAR, 0).carry_out(diverging, nothing)
