import numpy as np
import pytest

from spacetime_en import InputError
from spacetime_en.data import load_task


def test_the_solar_system_is_split_by_time():
    pytest.importorskip("de421", reason="the extra `solar` is not installed")
    for days in (30, 365):
        task = load_task("solar-system", target_steps=days)
        graph, _ = task.test[:1]
        assert graph.x.shape == (1, 10, 10, 3)
        assert graph.horizon.tolist() == [[days]]
        ends = [
            w.trajectories.steps[w.cut.frames(np.array([0, -1]))[:, [0, -1]]]
            for w in task.splits.values()
        ]
        assert ends[0][1, 1] < ends[1][0, 0]
        assert ends[1][1, 1] < ends[2][0, 0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_planets_go_round_the_sun():
    pytest.importorskip("de421", reason="the extra `solar` is not installed")
    from spacetime_en.data.datasets.solar import BODIES, solar_system

    t = solar_system(days=2000, every=5)
    x, v = t.x[0], t.v[0]
    sun, earth, moon = (x[:, list(BODIES).index(b)] for b in ("sun", "earth", "moon"))
    assert np.linalg.norm(earth - sun, axis=-1) == pytest.approx(1.0, abs=0.02)
    assert np.linalg.norm(moon - earth, axis=-1) == pytest.approx(0.00257, rel=0.08)
    # The barycentre stays where it is: masses and positions fit together.
    mass = np.array(list(BODIES.values()))
    centre = (mass[:, None] * x).sum(1) / mass.sum()
    assert np.abs(centre - centre[0]).max() < 1e-5
    # Velocities are the slopes of positions.
    slope = (x[2:] - x[:-2]) / 10
    outer = [list(BODIES).index(b) for b in ("jupiter", "saturn", "uranus", "neptune")]
    np.testing.assert_allclose(slope[:, outer], v[1:-1, outer], atol=1e-6)
    with pytest.raises(InputError, match="DE421 covers Julian days"):
        solar_system(days=200_000)
