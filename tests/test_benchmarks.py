"""The benchmarks run at small sizes, and count what they claim to count."""

import dataclasses
import json
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import (
    compare_seeds,
    compare_tasks,
    data_amount,
    flow_cost,
    general,
    noise_floor,
    oracle,
    rivals,
    set2_ablation,
    speed,
    timing,
)
from spacetime_en.cli import main
from spacetime_en.data.datasets.registry import load_task
from spacetime_en.geometry import random_rotation
from tests.conftest import TINY


def test_sides_take_turns():
    seen = []
    times = timing.side_by_side({"a": lambda: seen.append("a"), "b": lambda: seen.append("b")}, 3)
    assert seen == ["a", "a", "b", "b"] * 4
    assert set(times) == {"a", "b"}


def test_the_exponent_of_a_power():
    sizes = [10, 20, 50, 100]
    assert timing.exponent(sizes, [3 * s**1.5 for s in sizes]) == pytest.approx(1.5)


def allocate(megabytes):
    return lambda: torch.ones(megabytes * 2**20, dtype=torch.uint8)


def test_peak_memory_is_what_was_needed():
    assert timing.peak_memory(allocate, 64) == pytest.approx(64 * 2**20, rel=0.25)


def test_busy_processes_end_with_the_block(monkeypatch):
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        timing.subprocess, "Popen", lambda *args: started.append(popen(*args)) or started[-1]
    )
    with timing.busy(2):
        assert [process.poll() for process in started] == [None, None]
    assert [process.poll() for process in started] == [-signal.SIGKILL] * 2


def test_products_are_counted():
    """Two an edge, six a node, two in the first layers: 41 GFLOP less what folding saves."""
    graph = speed.particles(100, 10, 5)
    edges, nodes = 1000 * 20, 1000 * 5
    each = 3 * 2 * 128**2  # a product with its backward pass
    assert speed.matrix_products(graph, again=False) == each * (6 * 2 * edges + 3 * (6 + 2) * nodes)
    without_folding = each * (6 * 2 * edges + 6 * 6 * nodes)
    assert without_folding == pytest.approx(41e9, rel=0.01)


def test_a_gas_has_the_neighbours_asked_for():
    graph = speed.gas(1000, neighbours=20)
    assert float(graph.edge_mask.sum()) / 1000 == pytest.approx(20, rel=0.05)


def test_what_a_gas_costs(capsys):
    flow_cost.forecasts(60, horizon=0.01, repeats=1)
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith("60 nodes, 1,")
    equal, none, charges = rows[1:]
    assert equal.startswith("set-flow, 16 equal steps: ")
    assert re.match(r"set-flow, no force, 1[67] adaptive steps: ", none)  # nothing in a hurry
    assert re.match(r"set-flow, charges, \d+ adaptive steps: ", charges)


def test_the_batch_that_predict_chooses_beside_others():
    rows = list(speed.prediction(("straight-line",), frames=30, batches=(10,), rounds=1))
    assert [row["what"].split("B = ")[1] for row in rows] == ["chosen, 1638", "10"]
    assert rows[0]["ratio"] == 1


SMALL = {
    "loaded": lambda: speed.loaded(cases=((3, 2, 1),), L=2, others=1),
    "sparse": lambda: speed.sparse(nodes=(60, 120), rounds=1),
    "layer": lambda: speed.layer(cases=((3, 2, 1),), width=8),
    "general": lambda: speed.general(((3, 2, 1),), times=2, nodes=(60, 120), L=3, rounds=1),
}


def test_the_command_prints_rows_as_json(monkeypatch, capsys):
    monkeypatch.setattr(speed, "SECTIONS", SMALL)
    monkeypatch.setattr(sys, "argv", ["spacetime", "bench", *SMALL, "--json"])
    main()
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["machine"]["torch"] == torch.__version__
    exponents = [row["what"] for row in found["rows"] if "exponent" in row]
    parts = (
        *(f"sparse, {part}" for part in ("lists", "forward", "training step")),
        "general, sparse",
    )
    assert exponents == [f"{part}: growth with edges" for part in parts]
    assert all(row["what"] in err for row in found["rows"])


def test_an_unknown_section(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["spacetime", "bench", "trainin"])
    with pytest.raises(SystemExit, match=r"trainin.*training"):
        main()


@pytest.mark.slow
def test_every_section_runs():
    rows = [
        *speed.training(cases=((3, 2, 1),), L=3),
        *speed.memory(L=3, small=(3, 2), large=3),
        *speed.attention(compared=32, lengths=(32, 64), rounds=1),
        *speed.inference(batches=((1, 1), (2, 1)), N=3, L=3),
    ]
    assert all(row.get("ms", 1) > 0 and row.get("ratio", 1) > 0 for row in rows)


@pytest.mark.parametrize("row", set2_ablation.ROWS)
def test_every_row_of_the_ablation_trains(row, cache, monkeypatch):
    task = {"name": "charged", "counts": (12, 4, 4), "target_steps": 2}
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))
    monkeypatch.setitem(set2_ablation.DATA, "tiny", general.Row(task))
    found = set2_ablation.measured(row, "tiny", {"steps": 2})
    assert found["steps"] == 2
    assert found["validation"]["position_mse"]["mean"] < 1.0


def test_error_against_the_amount_of_data(cache, monkeypatch, tmp_path, capsys):
    task = {"name": "charged", "counts": (12, 4, 4), "target_steps": 2}
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))
    monkeypatch.setattr(data_amount, "TASK", task)
    monkeypatch.setattr(data_amount, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(data_amount, "VALIDATE_EVERY", 1)
    models = {name: data_amount.CONTESTANTS[name] for name in ("transformer", "transformer-plain")}
    models = {name: dataclasses.replace(one, rates=(1e-3,)) for name, one in models.items()}
    monkeypatch.setattr(data_amount, "CONTESTANTS", models)
    options = ["--windows", "3", "--budget", "0.05s", "--runs", str(tmp_path / "runs")]
    monkeypatch.setattr(sys, "argv", ["data_amount", *options])
    data_amount.main()
    names = {f"{name}--3--seed0.json" for name in models}
    made = {path.name: path.read_text() for path in (tmp_path / "results").iterdir()}
    assert {*made} == names | {"data_amount.svg"}
    for name in names:
        found = json.loads(made[name])
        assert found["training"]["augment"] == (found["model"] == "transformer")
        assert found["evaluation"]["windows"] == 4
        assert found["evaluation"]["position_mse"]["mean"] < 1.0
    legend = made["data_amount.svg"]
    assert all(f"<!-- {one.label} -->" in legend for one in models.values())
    printed = capsys.readouterr().out
    data_amount.main()  # nothing is trained again
    assert capsys.readouterr().out == printed


def test_fewer_windows_are_the_first_ones(cache):
    task = load_task("charged", counts=(12, 4, 4), target_steps=2, cache=cache)
    fewer = data_amount.first_windows(task, 5)
    assert len(fewer.train) == 5
    for part in (0, 1):
        assert torch.equal(fewer.train[:][part].x, task.train[:5][part].x)
        assert torch.equal(fewer.val[:][part].x, task.val[:][part].x)
        assert torch.equal(fewer.test[:][part].x, task.test[:][part].x)


def test_the_generator_goes_on_from_a_window_along_any_axes(cache):
    """It forecasts the targets; turned axes matter only where forces are clipped, here nowhere."""
    task = load_task("charged", counts=(1, 1, 6), target_steps=2, cache=cache)
    graph, target = task.test[:]
    charge = torch.tensor(np.asarray(task.test.trajectories.charge[2:]))
    axes = random_rotation(3, torch.Generator().manual_seed(0)).to(torch.float64)
    for turn in (torch.eye(3, dtype=torch.float64), axes):
        assert torch.allclose(oracle.generated(graph, charge, turn).float(), target.x, atol=1e-5)


def test_states_that_observations_leave_possible_are_about_the_true_ones(monkeypatch):
    """The mean of the samples misses the truth by as much as they spread."""
    monkeypatch.setattr(noise_floor, "STAGES", (0.0, 0.3, 1.0))
    rng = np.random.default_rng(0)
    x, v = rng.standard_normal((2, 1, 300, 5, 3))
    v *= noise_floor.SPEED / np.linalg.norm(v, axis=-1, keepdims=True)
    charge = rng.choice([-1.0, 1.0], (300, 5))
    steps = np.array([0, 10, 20, 30])
    paths = noise_floor.moved(x, v, charge, steps)
    noisy = [path[0] + 0.5**0.5 * rng.standard_normal(path[0].shape) for path in paths]
    seen = noise_floor.Observed(*noisy, 1e-3 * steps, 0.5, charge)
    for found, true in zip(noise_floor.posterior(seen, steps, 40, rng), (x, v), strict=True):
        spread = found.var(0, ddof=1).mean()
        missed = ((found.mean(0) - true[0]) ** 2).mean() - spread / 40
        assert missed == pytest.approx(spread, rel=0.1)
        assert spread < 0.8 * true.var()  # something was learned


def test_the_figure_by_hand_is_that_of_the_best_preset_over_its_seeds(tmp_path, monkeypatch):
    """A single lucky seed of another preset is not."""
    monkeypatch.setattr(compare_tasks, "BY_HAND", tmp_path)
    errors = {"set-2": (2.0, 2.2), "egnn": (1.0, 9.0)}
    for preset, means in errors.items():
        for seed, mean in enumerate(means):
            result = {
                "preset": preset,
                "training": {"max_time": "20m"},
                "evaluation": {"position_mse": {"mean": mean}},
            }
            (tmp_path / f"walk--{preset}--seed{seed}.json").write_text(json.dumps(result))
    best = compare_tasks.by_hand("walk")
    assert (best.preset, best.seeds) == ("set-2", 2)
    assert best.error == pytest.approx(2.1)
    assert str(best) == "2.1 (set-2, seeds: 2; named True, budget 20m)"
    assert compare_tasks.by_hand("springs") is None


@pytest.mark.parametrize("row", rivals.TASKS)
def test_the_tables_of_rivals_are_those_of_the_stored_results(row):
    """Of results that were added since, `python -m benchmarks.rivals` makes new ones."""
    made = rivals.table(row, rivals.TASKS[row]).to_markdown()
    assert (rivals.OURS / "tables" / f"{row}.md").read_text() == made


def test_models_in_one_table_come_from_both_commands(tmp_path, monkeypatch, capsys):
    """The lowest mean first; rates that were searched on the task itself are bold."""
    ours, papers = tmp_path / "general", tmp_path / "cpu"
    monkeypatch.setattr(rivals, "OURS", ours)
    monkeypatch.setattr(rivals, "PAPERS", papers)
    monkeypatch.setattr(rivals, "TASKS", {"near": "n5-near"})

    def errors(mean, **more):
        known = {"mean": mean, "median": mean / 2, "p90": 2 * mean, **more}
        return {"parameters": 1234, "position_mse": known, "velocity_mse": known}

    def ours_of(mean, lr, tried, steps, **more):
        training, evaluation = {"lr": lr}, errors(mean, **more)
        return {
            "evaluation": evaluation,
            "training": training,
            "rates_tried": tried,
            "steps": steps,
        }

    results = {
        ours / "near--set-2--seed0": ours_of(0.5, 0.004, {}, 10, standard_error=0.01),
        ours / "near--set-2--seed1": ours_of(0.7, 0.004, {}, 11, standard_error=0.01),
        ours / "near--tfn--seed0": ours_of(0.8, 0.01, {"0.01": 1.0}, 5),
        **{
            papers / f"n5-near--set--seed0{of}": {
                "test": errors(mean), "training": {"steps": 7}, "rate": 0.001
            }
            for of, mean in (("", 0.1), ("--rate0.5", 0.0))
        },
        papers / "trial--n5-near--set--seed0--rate0.001": {},
    }  # fmt: skip
    for path, result in results.items():
        path.parent.mkdir(exist_ok=True)
        path.with_suffix(".json").write_text(json.dumps(result))
    rivals.main()
    printed = capsys.readouterr().out
    rows = (ours / "tables" / "near.md").read_text().splitlines()[2:5]
    assert rows == [
        "| SET | 1,234 | 1 | 0.1 | 0.05 | 0.2 | 0.1 | 0.05 | **0.001** | 7 |",
        "| SET-2 | 1,234 | 2 | 0.6 ± 0.01 | 0.3 | 1.2 | 0.6 ± 0.01 | 0.3 | 0.004 | 10 to 11 |",
        "| TFN | 1,234 | 1 | 0.8 | 0.4 | 1.6 | 0.8 | 0.4 | **0.01** | 5 |",
    ]
    assert all(row in printed for row in rows)


def test_the_right_winner_is_the_lowest_test_error_or_no_worse(tmp_path, cache, monkeypatch):
    """Beside the one that validation chose, of uncertain errors, all would be right."""
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))
    monkeypatch.setattr(compare_seeds, "TASK", {"name": "charged", **TINY})
    errors = {"egnn": (1.0, 0.01), "linear": (1.0001, 0.01), "mlp": (1.1, 0.01), "set": (1.2, 9.0)}
    (tmp_path / "experiments").mkdir()
    for number, (preset, (mean, spread)) in enumerate(errors.items()):
        noise = np.random.default_rng(number).normal(size=12)
        position = mean + spread * (noise - noise.mean())
        result = {"preset": preset, "seeds": [{"position": position.tolist()}]}
        (tmp_path / "experiments" / f"test--{preset}.json").write_text(json.dumps(result))
    rows = [SimpleNamespace(preset=preset) for preset in ("egnn", "linear", "mlp")]
    board = SimpleNamespace(rows=rows, chosen="set")
    made = SimpleNamespace(folder=tmp_path, leaderboard=board)
    assert compare_seeds.right_winners(made) == ["egnn", "linear"]
    rows.append(SimpleNamespace(preset="set"))
    assert compare_seeds.right_winners(made) == ["egnn", "linear", "set"]


def test_comparisons_that_are_stored_are_not_made_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compare_seeds, "RESULTS", tmp_path)
    monkeypatch.setattr(compare_seeds, "compare", None)  # (a call would fail)
    one = {"seed": 0, "chosen": "egnn", "is_right": True, "cost": {}, "wall_seconds": 61.2}
    found = {
        "presets": ["egnn", "set"],
        "long": {"budget": "5m", "presets": ["egnn"], "right": ["egnn"], "rows": []},
        "short": {"budget": "30s", "seeds": [one, one | {"seed": 3, "is_right": False}]},
    }
    (tmp_path / "seeds.json").write_text(json.dumps(found))
    arguments = ["compare_seeds", "egnn", "set", "--long-presets", "egnn", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", arguments)
    compare_seeds.main()
    assert capsys.readouterr().out.splitlines() == [
        "at 5m: egnn",
        "seed 0: egnn, in 61 s, overhead unknown",
        "seed 3: egnn, which is wrong, in 61 s, overhead unknown",
        "1 of 2 right at 30s",
    ]
    monkeypatch.setattr(sys, "argv", [*arguments, "--short", "20s"])
    with pytest.raises(TypeError):  # another question
        compare_seeds.main()


def test_an_overhead_that_is_not_known_is_not_nothing():
    assert compare_seeds.overhead_of({"overhead": 0.0312}) == "overhead 3.1%"
    assert compare_seeds.overhead_of({}) == "overhead unknown"


def test_a_comparison_is_timed_if_it_was_made_in_one_go(tmp_path):
    folder = tmp_path / "short-0"

    def interrupted():
        folder.mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare_seeds._timed(folder, interrupted)
    assert compare_seeds._timed(folder, lambda: "made") == ("made", None)
    other = tmp_path / "short-1"
    _, seconds = compare_seeds._timed(other, lambda: other.mkdir() or "made")
    assert seconds >= 0
    assert compare_seeds._timed(other, lambda: "read") == ("read", seconds)  # not timed again
