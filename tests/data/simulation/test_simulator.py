import dataclasses

import numba
import numpy as np
import pytest
import torch

from spacetime_en import InputError
from spacetime_en.data import SYSTEMS, System, Trajectories, simulate
from spacetime_en.data.simulation.drift import drift
from spacetime_en.data.simulation.simd import rsqrt
from spacetime_en.data.simulation.simulator import integrate
from spacetime_en.data.simulation.systems import system_of
from tests.data import reference


@pytest.mark.parametrize("scheme", ["kick-drift", "verlet"])
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("nodes", [1, 2, 5])
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_kernel_is_the_plain_loop(system, nodes, dims, scheme):
    frames = [0, 1, 7, 40]
    t = simulate(system, 3, nodes=nodes, dims=dims, save=frames, scheme=scheme, seed=5)
    found = SYSTEMS[system]
    w = found.coupling(t.attributes, (3, nodes))
    mass = t.attributes.get("mass", np.ones((3, nodes)))
    for i in range(3):
        x, v = reference.integrate(found, t.x[i, 0], t.v[i, 0], w[i], mass[i], frames, scheme)
        np.testing.assert_allclose(t.x[i], x, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(t.v[i], v, rtol=1e-10, atol=1e-11)


def test_forces_are_clipped_component_by_component():
    x = np.array([[[0.0, 0, 0], [0.01, 0.001, 0]]])
    v = np.zeros_like(x)
    _, v = integrate(SYSTEMS["charged"], x, v, {"charge": np.ones((1, 2))}, np.array([1]))
    np.testing.assert_allclose(np.abs(v[0, 0, 0]), [0.1, 0.1, 0], atol=1e-12)  # 100 dt


def test_saved_velocities_are_those_of_the_drift():
    t = simulate("charged", 4, save=[0, 1, 2])
    np.testing.assert_allclose(t.x[:, 2] - t.x[:, 1], 0.001 * t.v[:, 2], atol=1e-15)


def test_starts_are_as_the_paper_says():
    for nodes in (5, 20):
        t = simulate("charged", 2000, nodes=nodes, save=[0], seed=1)
        assert t.x.std() == pytest.approx((nodes / 5) ** (1 / 3), rel=0.02)
        np.testing.assert_allclose(np.linalg.norm(t.v, axis=-1), 0.5)
        assert set(np.unique(t.charge)) == {-1, 1}
        assert abs(t.charge.mean()) < 0.03
        assert abs(t.v.mean()) < 0.01


def test_springs_join_half_of_the_pairs():
    t = simulate("springs", 500, save=[0])
    spring = t.attributes["spring"]
    assert (spring == spring.transpose(0, 2, 1)).all()
    assert spring.sum() / (500 * 20) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("scheme", ["kick-drift", "adaptive"])
def test_the_same_bits_whatever_the_pieces_and_threads(scheme):
    whole = simulate("charged", 45, save=[0, 300], seed=3, scheme=scheme)
    parts = [
        simulate("charged", 45, save=[0, 300], seed=3, scheme=scheme, shard=(i, 4))
        for i in range(4)
    ]
    assert np.array_equal(np.concatenate([p.x for p in parts]), whole.x)
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        alone = simulate("charged", 45, save=[0, 300], seed=3, scheme=scheme)
    finally:
        numba.set_num_threads(threads)
    assert np.array_equal(alone.x, whole.x)
    fewer = simulate("charged", 7, save=[0, 300], seed=3, scheme=scheme)
    assert np.array_equal(fewer.x, whole.x[:7])
    assert not np.array_equal(simulate("charged", 7, save=[0, 300], seed=4).x, fewer.x)


def test_each_trajectory_has_its_own_stream_keyed_by_seed_and_index():
    t = simulate("charged", 9, save=[0], seed=11)
    own = np.random.Generator(np.random.Philox(key=[11, 7]))
    x, v, attributes = SYSTEMS["charged"].start(own, 5, 3)
    assert np.array_equal(t.x[7, 0], x)
    assert np.array_equal(t.v[7, 0], v)
    assert np.array_equal(t.charge[7], attributes["charge"])


def test_by_default_what_the_papers_task_needs_is_made():
    t = simulate("charged", 2)
    assert t.steps.tolist() == [*range(0, 100, 10), 10_090]
    assert t.times[-1] == pytest.approx(10.09)


def test_a_system_of_ones_own_takes_a_few_lines():
    def start(rng, nodes, dims):
        return rng.standard_normal((nodes, dims)), np.zeros((nodes, dims)), {}

    def law(r2, w, parameter):  # a force of constant size parameter, repelling
        return w * parameter * rsqrt(r2)

    t = simulate(System("mine", start, law=law, parameter=2.0), 5, nodes=2, save=[0, 1000])
    d0, d1 = (t.x[:, k, 0] - t.x[:, k, 1] for k in (0, 1))
    r0, r1 = (np.linalg.norm(d, axis=-1) for d in (d0, d1))
    np.testing.assert_allclose(
        r1 - r0, 2 * 0.5 * 2.0 * 1.0 * 1.001, rtol=1e-9
    )  # two times a t^2 / 2


def test_the_adaptive_scheme_agrees_with_dop853():
    """Charged particles, forces not clipped, 3 time units: 1e-6 in the median, 1e-3 at p90."""
    scipy = pytest.importorskip("scipy.integrate")
    t = simulate("charged", 20, save=[0, 3000], scheme="adaptive", seed=2)
    errors = []
    for i in range(20):
        w = np.outer(t.charge[i], t.charge[i])

        def slope(_, state, w=w):
            x, v = state.reshape(2, 5, 3)
            d = x[:, None] - x[None]
            r2 = (d**2).sum(-1) + np.eye(5)
            return np.concatenate([v, ((w / r2**1.5)[..., None] * d).sum(1)]).ravel()

        start = np.concatenate([t.x[i, 0], t.v[i, 0]]).ravel()
        end = scipy.solve_ivp(slope, (0, 3), start, method="DOP853", rtol=1e-12, atol=1e-12)
        errors.append(np.abs(end.y[:15, -1].reshape(5, 3) - t.x[i, 1]).max())
    assert np.median(errors) < 1e-6
    assert np.quantile(errors, 0.9) < 1e-3


def test_gravity_agrees_with_rebound():
    """Softened gravity, 3 time units, against IAS15: 1e-6 everywhere."""
    rebound = pytest.importorskip("rebound")
    t = simulate("gravity", 10, save=[0, 3000], scheme="adaptive", seed=2)
    for i in range(10):
        sim = rebound.Simulation()
        sim.softening = 0.1
        for m, x, v in zip(t.attributes["mass"][i], t.x[i, 0], t.v[i, 0], strict=True):
            sim.add(m=m, x=x[0], y=x[1], z=x[2], vx=v[0], vy=v[1], vz=v[2])
        sim.integrate(3.0)
        end = np.array([[p.x, p.y, p.z] for p in sim.particles])
        np.testing.assert_allclose(t.x[i, 1], end, atol=1e-6)


@pytest.mark.parametrize("system", SYSTEMS)
def test_better_schemes_keep_the_energy_better(system):
    energy = {}
    for scheme in ("kick-drift", "verlet", "adaptive"):
        t = simulate(system, 50, save=[0, 2000], scheme=scheme)
        report = drift(SYSTEMS[system], t)
        energy[scheme] = np.median(report["energy"])
        assert np.median(report["momentum"]) < 1e-12
        assert np.median(report["angular_momentum"]) < 1e-11
    assert energy["kick-drift"] > 10 * energy["verlet"] > 10 * energy["adaptive"]


# --- on disk ------------------------------------------------------------------------------------


def test_shards_made_apart_are_the_whole_set(tmp_path):
    whole = simulate("charged", 50, save=[0, 20])
    for i in (2, 0, 1):
        simulate("charged", 50, save=[0, 20], out=tmp_path / "set", shard=(i, 3))
    t = Trajectories.open(tmp_path / "set", verify=True)
    assert np.array_equal(t.x[:], whole.x)
    assert np.array_equal(np.asarray(t.charge), whole.charge)
    assert np.array_equal(t.x[[49, 0, 17]], whole.x[[49, 0, 17]])
    for index in (..., 0), (slice(3, 30), slice(0, 1)), (4, ..., 1), (slice(None), -1), 17:
        assert np.array_equal(t.x[index], whole.x[index])
    rows, frames = np.array([[1, 40]]), np.array([[0, 1]])
    assert np.array_equal(t.v[rows, frames], whole.v[rows, frames])
    assert t.meta["seed"] == 0
    assert len(t.statistics) == 3  # the drift of each


def test_missing_shards_are_named(tmp_path):
    simulate("charged", 50, save=[0, 20], out=tmp_path, shard=(1, 3))
    with pytest.raises(InputError, match="2 of 3 shards are missing, the first is 0"):
        Trajectories.open(tmp_path)


def test_an_interruption_keeps_finished_shards_and_the_next_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("spacetime_en.data.simulation.simulator._CHUNK_BYTES", 16 * 2 * 5 * 3 * 8)
    seen = []

    def interrupt(done):
        seen.append(done)
        if len(seen) == 3:
            raise KeyboardInterrupt

    arguments = dict(save=[0, 20], out=tmp_path / "set")
    with pytest.raises(KeyboardInterrupt):
        simulate("charged", 40, progress=interrupt, **arguments)
    finished = {p: p.stat().st_mtime_ns for p in (tmp_path / "set").iterdir()}
    assert len(finished) == 2
    assert not any(p.name.startswith(".") for p in finished)  # nothing half-written
    t = simulate("charged", 40, **arguments)
    assert all(p.stat().st_mtime_ns == time for p, time in finished.items())
    assert np.array_equal(t.x[:], simulate("charged", 40, save=[0, 20]).x)


def test_a_shard_is_written_in_pieces(tmp_path, monkeypatch):
    """One shard larger than the memory for a piece is still one shard."""
    whole = simulate("charged", 40, save=[0, 20])
    monkeypatch.setattr("spacetime_en.data.simulation.simulator._CHUNK_BYTES", 16 * 2 * 5 * 3 * 8)
    done = []
    t = simulate(
        "charged", 40, save=[0, 20], out=tmp_path / "set", shard=(0, 1), progress=done.append
    )
    assert done == [8] * 5
    assert np.array_equal(t.x, whole.x)
    assert np.array_equal(t.charge, whole.charge)
    assert Trajectories.open(tmp_path / "set", verify=True).statistics[0]["energy"]["mean"] > 0


def test_another_data_set_in_the_folder_is_left_alone(tmp_path):
    simulate("charged", 10, save=[0, 20], out=tmp_path / "set")
    with pytest.raises(InputError, match="holds another data set"):
        simulate("charged", 10, save=[0, 20], seed=1, out=tmp_path / "set")


@pytest.mark.parametrize(
    "other", [dict(nodes=7), dict(dims=2), dict(system="gravity"), dict(scheme="verlet")]
)
def test_a_set_is_not_gone_on_with_by_another_simulation(tmp_path, other):
    common = {"system": "charged", "num": 10, "save": [0, 5], "out": tmp_path / "set"}
    simulate(**common, shard=(0, 2))
    with pytest.raises(InputError, match="holds another data set"):
        simulate(**(common | other), shard=(0, 2))
    with pytest.raises(InputError, match="other settings than its neighbours"):
        simulate(**(common | other), shard=(1, 2))


def test_a_set_begun_in_parts_goes_on_in_as_many(tmp_path):
    common = {"system": "charged", "num": 10, "save": [0, 5], "out": tmp_path / "set"}
    simulate(**common, shard=(0, 2))
    with pytest.raises(InputError, match="holds shards of a set in 2 parts"):
        simulate(**common, shard=(1, 3))
    assert len(simulate(**common)) == 10
    assert len(list((tmp_path / "set").iterdir())) == 2


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"holds run\.json, and is no data set"):
        simulate("springs", 2, steps=10, out=tmp_path)
    with pytest.raises(InputError, match=r"holds run\.json, and is no data set"):
        simulate("springs", 2, steps=10).save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_data_are_of_a_system_only_with_its_attributes():
    for name in SYSTEMS:
        data = simulate(name, 2, steps=10)
        assert system_of(data) is SYSTEMS[name]
        (attribute,) = data.attributes
        wrong = {attribute: np.ones((2, 5, 5) if name != "springs" else (2, 5))}
        for attributes in ({}, {"other": data.attributes[attribute]}, wrong):
            assert system_of(dataclasses.replace(data, attributes=attributes)) is None
        for meta in ({}, {"system": None}, {"system": "mine"}):
            assert system_of(dataclasses.replace(data, meta=meta)) is None


def test_large_seeds_are_all_different():
    first = [simulate("charged", 1, save=[0], seed=s).x for s in (2**63, 2**63 + 1, 2**64 - 1)]
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[1], first[2])
    with pytest.raises(InputError, match="seed: expected a whole number"):
        simulate("charged", 1, save=[0], seed=2**64)


def test_a_head_on_collision_ends():
    """Opposite charges at rest fall into each other: the adaptive scheme must not stand still."""
    x = np.array([[[0.0, 0, 0], [1.0, 0, 0]]])
    charge = {"charge": np.array([[1.0, -1.0]])}
    frames = np.array([0, 3000])
    out, _ = integrate(SYSTEMS["charged"], x, 0 * x, charge, frames, "adaptive")
    assert np.isfinite(out).all()


def test_without_save_the_last_step_is_kept():
    assert simulate("charged", 1, steps=150).steps.tolist() == [0, 100, 150]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(system="planets"), "system: there is no 'planets'; expected one of charged, gravity"),
        (dict(num=0), "num: expected a positive whole number, found 0"),
        (dict(dims=4), "dims: expected 2 or 3, found 4"),
        (dict(scheme="euler"), "scheme: there is no 'euler'; expected one of kick-drift"),
        (dict(save=[10, 5]), "save: expected increasing"),
        (dict(steps=100, save=[0, 200]), "save: asks for step 200, but steps is 100"),
        (dict(shard=(4, 4)), "shard: expected i/n .*, found 4/4"),
        (dict(engine="dask"), "engine: expected 'local' or 'ray'"),
        (dict(engine="ray"), "out: the ray engine writes shards"),
    ],
)
def test_bad_input_is_told_in_one_sentence(arguments, message):
    with pytest.raises(InputError, match=message):
        simulate(**({"system": "charged", "num": 4} | arguments))


@pytest.mark.slow
def test_ray_gives_the_same_bits(tmp_path):
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    ray.init(num_cpus=2, log_to_driver=False, configure_logging=False)
    try:
        done = []
        there = simulate(
            "charged", 50, save=[0, 50], out=tmp_path / "set", engine="ray", progress=done.append
        )
    finally:
        ray.shutdown()
    assert sum(done) == 50
    assert len(list((tmp_path / "set").iterdir())) == 2  # one for each worker
    assert np.array_equal(there.x[:], simulate("charged", 50, save=[0, 50]).x)


def test_torch_keeps_its_number_of_threads():
    """Otherwise training on new data would differ in bits from training on existing data."""
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            simulate("charged", num=20, save=[0, 10])
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"nodes": 10**9}, r"nodes: 1,000,000,000 nodes and 11 frames need .* EB of memory"),
        ({"num": 10**15}, r"num: 1,000,000,000,000,000 trajectories .* need .* EB of memory"),
        ({"num": 10**15, "out": "set"}, r"num: .* take .* EB, and .*set has room for"),
        ({"num": 10**30}, "num: expected a positive whole number"),
        ({"steps": 10**18}, "steps: expected 0 to 9,007,199,254,740,992"),
        ({"steps": 10**13}, "steps: every 100th of .* say which, with save"),
        ({"save": (0, 10**30)}, "save: expected steps from 0 to"),
        ({"save": (-1, 5)}, "save: expected"),
    ],
)
def test_what_no_machine_holds_is_refused_before_anything_is_made(tmp_path, options, sentence):
    if "out" in options:
        options = options | {"out": tmp_path / "set"}
    with pytest.raises(InputError, match=sentence):
        simulate("charged", **({"num": 8} | options))
    assert not list(tmp_path.iterdir())
