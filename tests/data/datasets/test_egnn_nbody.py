import numpy as np
import pytest

from spacetime_en.data import load_task
from spacetime_en.data.datasets import egnn_nbody
from tests.data import reference


def test_the_egnn_replay_is_the_public_generator_to_the_bit():
    """Also in close encounters, where the last bit decides: simulation 12,018 has one."""
    runs = np.array([0, 5, 12_018])
    t = egnn_nbody.replay(runs)
    charge, x, v = egnn_nbody.draw(12_019)
    for k, run in enumerate(runs):
        for frame, step in ((0, 3_100), (1, 4_100)):
            end_x, end_v = reference.egnn_generator(charge[run], x[run], v[run], step)
            assert np.array_equal(t.x[k, frame], end_x.T)
            assert np.array_equal(t.v[k, frame], end_v.T)


def test_the_egnn_stream_starts_as_the_legacy_generator():
    stream = np.random.RandomState(43)
    charge, x, v = egnn_nbody.draw(2)
    for i in range(2):
        assert np.array_equal(
            charge[i], stream.choice([-1, 0, 1], size=(5, 1), p=[0.5, 0, 0.5])[:, 0]
        )
        assert np.array_equal(x[i], stream.randn(3, 5))
        direction = stream.randn(3, 5)
        np.testing.assert_allclose(v[i], direction / np.linalg.norm(direction, axis=0) / 2)
        stream.randn(49, 3, 5), stream.randn(49, 3, 5)


@pytest.mark.slow
def test_the_egnn_task_is_the_published_one():
    """x + 0.735 v has a published test error of 0.0835; one trajectory in ten depends on a bit."""
    task = load_task("egnn-nbody")
    assert [len(w) for w in task.splits.values()] == [3_000, 2_000, 2_000]
    graph, target = task.test[:]
    assert graph.x.shape == (2_000, 1, 5, 3)
    error = (graph.x + 0.735 * graph.v - target.x).square().mean().item()
    assert error == pytest.approx(0.0835, abs=1.5e-3)
    for target_steps in (15, 20):
        graph, _ = load_task("egnn-nbody", target_steps=target_steps).test[0]
        assert graph.horizon.item() == target_steps / 10
