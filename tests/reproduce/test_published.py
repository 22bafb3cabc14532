"""The bound that no equivariant model can beat on targets of zero."""

import pytest

from spacetime_en import load_task
from spacetime_en.nn.models.trivial import LastFrame
from spacetime_en.reproduce.plan import MODELS, TABLES
from spacetime_en.reproduce.published import PUBLISHED, centroid_variance


def test_published_rows_are_rows_of_the_tables():
    assert set(PUBLISHED) <= set(TABLES)
    assert all(set(row) <= set(MODELS) for row in PUBLISHED.values())
    assert all(float(mse) > 0 for row in PUBLISHED.values() for mse in row.values())


def test_no_equivariant_forecast_of_zero_beats_the_centroids_variance(cache):
    task = load_task("charged", targets="zero", cache=cache, counts=(40, 12, 200), length=3)
    bound = centroid_variance(task.test)
    assert bound == pytest.approx(0.2, abs=0.05)  # sigma^2 / N
    graph, target = task.test[:]
    assert not target.x.any()
    assert float(LastFrame()(graph).x.square().mean()) > bound
