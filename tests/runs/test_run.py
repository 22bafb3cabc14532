import dataclasses
import errno
import json
import shutil
import sys

import pytest
import torch
from lightning.pytorch import Callback
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from spacetime_en import Forecaster, InputError, StraightLine
from spacetime_en.runs import checkpoints
from spacetime_en.runs.config import Config
from spacetime_en.runs.run import Run, environment
from spacetime_en.runs.training import train
from tests.conftest import TINY
from tests.helpers import is_aligned

TEXT = f"""
preset: set
model: {{hidden: 8, layers: 1, blocks: 2}}
task:
  {{name: charged, counts: {list(TINY["counts"])}, target_steps: {TINY["target_steps"]}, length: 3}}
training: {{lr: 1e-2, batch_size: 16, steps: 6, validate_every: 3, save_every: 0}}
"""


@pytest.fixture(autouse=True)
def cached(monkeypatch, cache, tiny_task):
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))


def run_in(folder, text=TEXT, **options):
    said = []
    options = {"display": False, "notify": said.append} | options
    return train(Config.from_yaml(text, "here"), folder, **options), said


CORRECTING = """
preset: set-2
model: {hidden: 8, layers: 1, base: straight-line}
task: {name: charged, counts: [40, 12, 12], target_steps: 10, length: 3}
"""


@pytest.mark.parametrize(("rate", "adds"), [(1e-3, True), (1e-12, False)])
def test_a_network_that_adds_nothing_to_its_base_says_so(tmp_path, tiny_task, rate, adds):
    steps = f"training: {{lr: {rate}, steps: {60 if adds else 1}, validate_every: 20}}"
    run, said = run_in(tmp_path / "x", CORRECTING + steps)
    nothing = [line for line in said if "added nothing to its base (straight-line)" in line]
    assert len(nothing) == (not adds)
    assert (run.load("best").progress.best_step == 0) is not adds
    if not adds:
        graph, _ = tiny_task.test[:4]
        assert torch.equal(run.model()(graph).x, StraightLine()(graph).x)
        assert run_in(tmp_path / "x", CORRECTING + steps, resume=True)[1][-1] == nothing[0]


def test_a_run_holds_all_that_is_needed(tmp_path, tiny_task):
    run, said = run_in(tmp_path / "x")
    assert said == []
    again = Run.open(tmp_path / "x")
    assert again == run
    assert again.config.model["features"] == 1  # every setting, also those from the data
    assert again.config.training.steps == 6
    assert again.facts["data"]["fingerprint"] == tiny_task.fingerprint
    assert again.facts["data"]["frame_time"] == pytest.approx(0.01)
    assert again.facts["data"]["horizon_times"] == [pytest.approx(0.1)]
    state = again.load("last")
    assert state.progress.step == 6
    assert {name.split("/")[1] for name in state.optimiser} == {"step", "exp_avg", "exp_avg_sq"}
    graph, _ = tiny_task.test[:4]
    model = again.model()
    assert not model.training
    loaded = Forecaster.from_pretrained(tmp_path / "x" / "model")
    assert torch.equal(model(graph).x, loaded(graph).x)
    logs = tmp_path / "x" / "logs" / "sitting-1"
    header, *lines = (logs / "metrics.csv").read_text().splitlines()
    assert "val_position_mse" in header
    assert len(lines) == 2
    assert list(logs.glob("events.out.tfevents.*"))


def test_the_saved_config_trains_the_same_run_again(tmp_path):
    run_in(tmp_path / "x")
    run_in(tmp_path / "y", (tmp_path / "x" / "config.yaml").read_text())
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in "xy")
    assert all(torch.equal(one[key], other[key]) for key in other)


def test_what_a_run_loads_lies_in_memory_as_what_was_built(tmp_path):
    run, _ = run_in(tmp_path / "x")
    assert is_aligned(run.model().state_dict())
    state = run.load("last")
    assert is_aligned(state.weights)
    assert is_aligned(state.optimiser)


def test_a_run_is_never_overwritten(tmp_path):
    run_in(tmp_path / "x")
    before = (tmp_path / "x" / "checkpoints" / "last.safetensors").read_bytes()
    with pytest.raises(InputError, match=r"x: is a run already; resume it \(--resume\)"):
        run_in(tmp_path / "x")
    assert (tmp_path / "x" / "checkpoints" / "last.safetensors").read_bytes() == before


def test_resuming_goes_on_with_a_larger_budget_and_nothing_else_changed(tmp_path):
    run_in(tmp_path / "x")
    longer = TEXT.replace("steps: 6", "steps: 9")
    run, said = run_in(tmp_path / "x", longer, resume=True)
    assert said == [f"{tmp_path / 'x'}: goes on at step 6."]
    assert run.load("last").progress.step == 9
    whole, _ = run_in(tmp_path / "y", longer)
    for part in ("weights", "optimiser"):
        ours, theirs = (getattr(r.load("last"), part) for r in (run, whole))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    with pytest.raises(InputError, match=r"began with training.lr = 0.01, now it is 0.1; only the"):
        run_in(tmp_path / "x", longer.replace("1e-2", "1e-1"), resume=True)
    with pytest.raises(InputError, match=r"began with model.hidden = 8, now it is 4"):
        run_in(tmp_path / "x", longer.replace("hidden: 8", "hidden: 4"), resume=True)
    with pytest.raises(InputError, match="its data have changed"):
        run_in(tmp_path / "x", longer.replace("target_steps: 10", "target_steps: 9"), resume=True)


def test_a_truncated_checkpoint_is_told_and_the_one_before_is_used(tmp_path):
    whole, _ = run_in(tmp_path / "x")
    shutil.copytree(tmp_path / "x", tmp_path / "y")
    last = tmp_path / "y" / "checkpoints" / "last.safetensors"
    last.write_bytes(last.read_bytes()[:-100])
    run, said = run_in(tmp_path / "y", resume=True)
    assert "last.safetensors: is not a whole safetensors file" in said[0]
    assert "Going back to an earlier checkpoint." in said[0]
    assert said[1].endswith("goes on at step 5.")
    ours, theirs = (r.load("last").weights for r in (run, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_killed_between_the_two_renames(tmp_path):
    run_in(tmp_path / "x")
    (tmp_path / "x" / "checkpoints" / "last.safetensors").unlink()
    run, said = run_in(tmp_path / "x", resume=True)
    assert said[0].endswith("goes on at step 5.")
    assert run.load("last").progress.step == 6


def test_a_full_disk_costs_checkpoints_not_the_training(tmp_path, monkeypatch):
    def save(tensors, path, metadata):
        if json.loads(metadata["checkpoint"])["progress"]["step"] in (4, 5):
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        save_file(tensors, path, metadata)

    monkeypatch.setattr(checkpoints, "save_file", save)
    run, said = run_in(tmp_path / "x")
    assert [text[:41] for text in said] == [
        "warning: the checkpoint of step 4 could n",
        "warning: the checkpoint of step 5 could n",
    ]
    assert "No space left on device" in said[0]
    assert run.load("last").progress.step == 6
    names = {path.name for path in (tmp_path / "x" / "checkpoints").iterdir()}
    assert names == {"last.safetensors", "previous.safetensors", "best.safetensors"}


def test_a_best_checkpoint_that_could_not_be_written_is_written_later(tmp_path, monkeypatch):
    def save(tensors, path, metadata):
        known = json.loads(metadata["checkpoint"])["progress"]
        if path.name.startswith("best") and len(tried) < 2:
            tried.append(known["step"])
            raise OSError(errno.ENOSPC, "No space left on device")
        save_file(tensors, path, metadata)

    tried = []
    monkeypatch.setattr(checkpoints, "save_file", save)
    run, _ = run_in(tmp_path / "x")
    assert tried
    assert run.load("best").progress.best == run.load("last").progress.best
    assert (tmp_path / "x" / "model" / "model.safetensors").is_file()


def test_no_checkpoint_that_can_be_read(tmp_path):
    run, _ = run_in(tmp_path / "x")
    best = run.checkpoint("best").read_bytes()
    for name in ("last", "previous"):
        run.checkpoint(name).write_bytes(b"rubbish")
    longer = TEXT.replace("steps: 6", "steps: 9")
    again, said = run_in(tmp_path / "x", longer, resume=True)
    assert said[-1].endswith(f"goes on at step {run.load('best').progress.best_step}.")
    assert again.load("last").progress.step == 9
    for name in ("last", "previous", "best"):
        run.checkpoint(name).write_bytes(b"rubbish")
    with pytest.raises(InputError, match="No other checkpoint can be read"):
        run_in(tmp_path / "x", longer, resume=True)
    assert best != b"rubbish"


def test_a_lost_best_is_told_and_looked_for_anew(tmp_path):
    run, _ = run_in(tmp_path / "x")
    run.checkpoint("best").write_bytes(b"rubbish")
    again, said = run_in(tmp_path / "x", TEXT.replace("steps: 6", "steps: 9"), resume=True)
    assert "From here on the best is looked for anew." in said[0]
    assert again.load("best").progress.step == 9


def test_a_checkpoint_of_other_data(tmp_path):
    run, _ = run_in(tmp_path / "x")
    other, _ = run_in(tmp_path / "y", TEXT.replace("target_steps: 10", "target_steps: 9"))
    shutil.copy(other.checkpoint("best"), run.checkpoint("best"))
    with pytest.raises(InputError, match="is a checkpoint of a training on other data"):
        run.model()


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        ("run.json", '"charge": "node"', '"other": "pair", "charge": "node"', "attributes"),
        ("run.json", '"frames": 3', '"frames": 2', "frames"),
        ("config.yaml", "  length: 3", "  length: 2", "task.length"),
    ],
)
def test_files_that_say_something_else_than_the_checkpoint_are_refused(
    tmp_path, file, old, new, named
):
    run_in(tmp_path)
    path = tmp_path / file
    changed = path.read_text().replace(old, new)
    assert changed != path.read_text()
    path.write_text(changed)
    with pytest.raises(InputError, match=f"best.safetensors: was trained with '{named}'"):
        Run.open(tmp_path).model()


def test_the_order_of_attributes_is_the_checkpoints(tmp_path):
    run, _ = run_in(tmp_path)
    facts = json.loads(json.dumps(run.facts))
    facts["data"]["attributes"] = {"charge": "node", "mass": "node"}
    lie = dataclasses.replace(run, facts=facts)
    path, state = tmp_path / "best.safetensors", run.load("best")
    checkpoints.write_checkpoint(path, state, lie._owner())
    facts["data"]["attributes"] = {"mass": "node", "charge": "node"}
    with pytest.raises(InputError, match="was trained with 'attributes'"):
        checkpoints.read_progress(path, lie._owner())


def test_a_checkpoint_of_an_earlier_version_holds_no_facts(tmp_path):
    run, _ = run_in(tmp_path)
    owner = dataclasses.replace(run._owner(), facts={})
    checkpoints.write_checkpoint(run.checkpoint("best"), run.load("best"), owner)
    run.model()


@pytest.mark.parametrize("name", ["config.yaml", "diverged.json", "logs/notes.txt"])
def test_a_folder_of_something_else_is_not_written_to(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(TEXT)
    with pytest.raises(InputError, match=r"holds [\w.]+, and is no run; choose another folder"):
        run_in(tmp_path)
    with pytest.raises(InputError, match="is no folder"):
        run_in(tmp_path / name)
    assert (tmp_path / name).read_text() == TEXT


def test_the_number_of_a_process_that_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "x")
    with pytest.raises(InputError, match="RANK: the environment has 'x', expected the number"):
        run_in(tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_second_training_in_the_same_folder_is_refused(tmp_path):
    class Second(Callback):
        def on_train_start(self, trainer, module):
            for resume in (False, True):
                with pytest.raises(InputError, match="another process is at work here") as error:
                    run_in(tmp_path / "x", resume=resume)
                said.append(str(error.value))

    said = []
    run, _ = run_in(tmp_path / "x", callbacks=[Second()])
    assert len(said) == 2
    assert run.load("last").progress.step == 6


def test_a_training_that_cannot_begin_leaves_nothing(tmp_path):
    with pytest.raises(InputError):
        run_in(tmp_path / "x", TEXT.replace("charged", "charge"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fate", ["deleted", "moved", "deleted at the end"])
def test_a_folder_that_goes_while_training_is_an_error(tmp_path, fate):
    class Go(Callback):
        def on_train_batch_end(self, trainer, module, *rest):
            if module.progress.step == 2 and fate == "deleted":
                shutil.rmtree(tmp_path / "x")
            if module.progress.step == 2 and fate == "moved":
                (tmp_path / "x").rename(tmp_path / "y")

        def on_train_end(self, trainer, module):
            if fate == "deleted at the end":
                shutil.rmtree(tmp_path / "x")

    with pytest.raises(InputError, match="x: has been deleted or moved"):
        run_in(tmp_path / "x", callbacks=[Go()])
    assert not (tmp_path / "x" / "checkpoints").exists()


def test_a_run_in_double_precision_stays_so(tmp_path):
    run, _ = run_in(tmp_path / "x", TEXT.replace("lr: 1e-2", "lr: 1e-2, precision: 64-true"))
    assert {p.dtype for p in run.model().parameters()} == {torch.float64}


def test_divergence_lists_the_windows_and_keeps_the_last_good_checkpoint(tmp_path):
    wild = TEXT.replace("1e-2", "1e9").replace("save_every: 0", "save_every: 0, clip: null")
    with pytest.raises(InputError, match=r"lower lr .* The windows are listed in .*diverged.json"):
        run_in(tmp_path / "x", wild)
    listed = json.loads((tmp_path / "x" / "diverged.json").read_text())
    assert len(listed["training_windows"]) == 16
    state = Run.open(tmp_path / "x").load("last")
    assert all(w.isfinite().all() for w in state.weights.values())


def test_a_checkpoint_of_another_model(tmp_path):
    run, _ = run_in(tmp_path / "x")
    other, _ = run_in(tmp_path / "y", TEXT.replace("hidden: 8", "hidden: 4"))
    shutil.copy(other.checkpoint("best"), run.checkpoint("best"))
    with pytest.raises(InputError, match=r"best.safetensors: is a checkpoint of another model"):
        run.model()


def test_no_run_and_no_checkpoint(tmp_path):
    with pytest.raises(InputError, match=r"is no run \(expected config.yaml"):
        Run.open(tmp_path)
    run, _ = run_in(tmp_path / "x")
    run.checkpoint("best").unlink()
    with pytest.raises(InputError, match="has no checkpoint yet"):
        run.model()


def test_loggers_by_import_path(tmp_path):
    run_in(tmp_path / "x", loggers=["lightning.pytorch.loggers.CSVLogger"])
    assert list((tmp_path / "x").glob("**/metrics.csv"))
    with pytest.raises(InputError, match=r"loggers: no.Logger: cannot be imported"):
        run_in(tmp_path / "y", loggers=["no.Logger"])


def test_a_disk_that_stays_full_is_one_sentence(tmp_path, monkeypatch):
    def save(tensors, path, metadata):
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr(checkpoints, "save_file", save)
    with pytest.raises(InputError, match=r"the best model could not be written .* make room"):
        run_in(tmp_path / "x")


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("postgresql://me:secret@host:5432/db", "postgresql://me:***@host:5432/db"),
        (
            "--storage=mysql+pymysql://me:se/cret@@host/db",
            "--storage=mysql+pymysql://me:***@host/db",
        ),
        ("redis://:secret@host:6379/0", "redis://:***@host:6379/0"),
        (
            "postgresql://host/db?user=me&password=secret",
            "postgresql://host/db?user=me&password=***",
        ),
        ("postgresql://me@host:5432/db", "postgresql://me@host:5432/db"),
        ("sqlite:////tmp/a.db", "sqlite:////tmp/a.db"),
        ("--data.times=1:2", "--data.times=1:2"),
    ],
)
def test_no_password_is_kept_with_the_command(monkeypatch, address, kept):
    monkeypatch.setattr(sys, "argv", ["spacetime", "compare", "--storage", address])
    assert environment()["command"] == ["compare", "--storage", kept]
