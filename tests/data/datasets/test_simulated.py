import pytest
import torch

from spacetime_en import InputError, build_model
from spacetime_en.data import load_task
from spacetime_en.metrics import errors, summary

SMALL = dict(counts=(40, 10, 10))


@pytest.mark.parametrize("name", ["charged", "charged-noisy", "gravity", "springs"])
def test_named_tasks_are_made_once_and_kept(name, tmp_path, monkeypatch):
    task = load_task(name, **SMALL, target_steps=5)
    assert [len(w) for w in task.splits.values()] == [40, 10, 10]
    graph, target = task.train[:]
    assert graph.x.shape == (40, 10, 5, 3)
    assert target.x.shape == (40, 1, 5, 3)
    monkeypatch.setattr(
        "spacetime_en.data.simulation.simulator._Simulation.part",
        lambda *a, **k: pytest.fail("made again"),
    )
    again = load_task(name, **SMALL, target_steps=5)
    assert torch.equal(again.train[:][0].x, graph.x)


def test_a_spoilt_cache_is_noticed(tmp_path):
    load_task("charged", **SMALL, target_steps=5)
    (x,) = (tmp_path / "cache").glob("*/shard-*/x.npy")
    data = bytearray(x.read_bytes())
    data[-1] ^= 1
    x.write_bytes(data)
    with pytest.raises(InputError, match="its checksum does not fit"):
        load_task("charged", **SMALL, target_steps=5)


def test_noisy_targets_and_clean_ones():
    noisy = load_task("charged-noisy", **SMALL, target_steps=5)
    clean = load_task("charged-noisy", **SMALL, target_steps=5, targets="clean")
    plain = load_task("charged", **SMALL, target_steps=5)
    assert torch.equal(noisy.test[:][0].x, clean.test[:][0].x)
    assert torch.equal(clean.test[:][1].x, plain.test[:][1].x)
    assert not torch.equal(noisy.test[:][1].x, plain.test[:][1].x)


def test_the_papers_task_is_as_hard_as_it_was_measured():
    """Last frame 0.160, straight line 0.071 at H = 1,000, N = 5, with heavy tails."""
    task = load_task("charged", counts=(10, 10, 2000), target_steps=100)
    graph, target = task.test[:]
    found = {
        preset: summary(errors(build_model(preset)(graph), target)[0])["mean"]
        for preset in ("last-frame", "straight-line")
    }
    assert found["last-frame"] == pytest.approx(0.160, rel=0.15)
    assert found["straight-line"] == pytest.approx(0.071, rel=0.15)


def test_a_path_is_simulated_at_each_of_its_targets():
    _, path = load_task("charged", **SMALL, target_steps="3,5").train[:]
    assert path.x.shape == (40, 2, 5, 3)
    for k, steps in enumerate((3, 5)):
        _, one = load_task("charged", **SMALL, target_steps=steps).train[:]
        assert torch.equal(path.x[:, k], one.x[:, 0])
