"""Tables from results: what is printed is what was measured."""

import dataclasses
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from spacetime_en import InputError
from spacetime_en.compare.results import result_path, settings_of
from spacetime_en.compare.table import Cell
from spacetime_en.reproduce.plan import MODELS, SCALES, Data, Experiment
from spacetime_en.reproduce.tables import Results, make_tables

SCALE = SCALES["cpu"]


def errors(mean):
    return {"mean": mean, "median": mean / 2, "p90": 2 * mean, "standard_error": mean / 10}


def write_trials(folder, experiment, best=1e-3):
    """Trials of which one rate is the best."""
    for trial in experiment.trials(SCALE):
        settings = settings_of(trial.config(SCALE, None))
        training = {"val_mse": abs(trial.rate - best)}
        path = result_path(folder, trial.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        result = {"rate": trial.rate, "settings": settings, "training": training}
        path.write_text(json.dumps(result))


def write(folder, experiment, mean, **more):
    write_trials(folder, experiment)
    both = {"position_mse": errors(mean), "velocity_mse": errors(mean / 10)}
    trivial = errors(20.0) | {"position_mse": errors(20.0), "velocity_mse": errors(0.5)}
    names = ("last_frame", "straight_line", "least_squares_line")
    result = {
        "rate": 1e-3,
        "settings": settings_of(experiment.config(SCALE, 1e-3)),
        "training": {
            "seconds": 300.0,
            "steps": 1000,
            "samples": 32_000,
            "val_mse": mean,
            "curve": [],
        },
        "test": both
        | dict.fromkeys(names, trivial)
        | {
            "parameters": 796_058,
            "equivariance_error": {"translation": 1e-7, "rotation": 2e-7, "permutation": 0.0},
        },
        "clean": dict.fromkeys(("model", *names), both),
    } | more
    path = result_path(folder, experiment.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result))


def tables(folder):
    return {table.name: table for table in make_tables(Results(folder, SCALE))}


def row(table, label):
    cells = dict(table.rows)[label]
    return dict(zip(table.columns, cells, strict=True))


def test_seeds_become_mean_and_standard_deviation(tmp_path):
    for seed, mean in enumerate((3.0, 4.0, 5.0)):
        write(tmp_path, Experiment(Data(), "set", seed), mean)
    table = tables(tmp_path)["baselines"]
    cells = row(table, "SET")
    assert cells["position MSE"].text == "4 ± 1"
    assert cells["position MSE"].value == 4
    assert cells["published"].text == "1.25e-10"
    assert cells["training"].text == "5.0 min"
    assert cells["samples"].text == "32,000"
    assert cells["equivariance error"].text == "2e-07"
    assert row(table, "last frame")["position MSE"].value == 20
    assert row(table, "straight line")["velocity MSE"].value == 0.5
    assert cells["seeds"].text == "3"
    assert cells["position s.e."].text == "0.4"
    assert cells["velocity s.e."].text == "0.04"
    assert row(table, "last frame")["position s.e."].value == 2
    passes, floor = table.notes
    assert passes == (
        "± is the standard deviation over seeds, s.e. the standard error over windows. Passes over "
        "the training data: SET 2."
    )
    assert "less than about 2.21 ± 0.10 in the mean" in floor


@pytest.mark.parametrize(("nodes", "floor"), [(20, "4.02"), (30, "4.95")])
def test_each_number_of_nodes_has_its_own_floor_at_the_horizon_it_was_found_for(
    tmp_path, nodes, floor
):
    write(tmp_path, Experiment(Data(nodes), "egnn"), 5.0)
    write(tmp_path, Experiment(Data(steps_ahead=1_000), "egnn"), 5.0)
    made = tables(tmp_path)
    assert [floor in note for note in made[f"n{nodes}"].notes] == [False, True]
    assert not any("equivariant" in note for note in made["h1000"].notes)


def test_a_rate_that_was_not_chosen_on_the_task_is_marked(tmp_path):
    """Whether its trials are missing or have chosen another."""
    experiment = Experiment(Data(steps_ahead=1_000), "set")
    write(tmp_path, experiment, 4.0)
    assert "SET" in dict(tables(tmp_path)["h1000"].rows)
    write_trials(tmp_path, experiment, best=3e-3)
    table = tables(tmp_path)["h1000"]
    assert row(table, "SET †")["position MSE"].value == 4
    assert table.notes[-1].startswith("† At a learning rate that trials at N = 5, H = 10,000 chose")
    result_path(tmp_path, experiment.trials(SCALE)[0].name).unlink()
    assert "SET †" in dict(tables(tmp_path)["h1000"].rows)
    horizons = tables(tmp_path)["horizons"]
    assert row(horizons, "SET")["H = 1,000"].text == "4 ± 0.4 (2) †"
    assert horizons.notes[-1] == table.notes[-1]


def test_results_older_than_standard_errors_have_none(tmp_path):
    write(tmp_path, Experiment(Data(20), "egnn"), 5.0)
    path = result_path(tmp_path, Experiment(Data(20), "egnn").name)
    result = json.loads(path.read_text())
    del result["test"]["position_mse"]["standard_error"]
    path.write_text(json.dumps(result))
    cells = row(tables(tmp_path)["n20"], "EGNN")
    assert cells["position s.e."] == Cell()
    assert cells["velocity s.e."].value == pytest.approx(0.05)


def test_tables_show_what_there_is_and_no_more(tmp_path):
    assert tables(tmp_path) == {}
    write(tmp_path, Experiment(Data(30), "egnn"), 5.0)
    found = tables(tmp_path)
    assert list(found) == ["n30"]
    assert [label for label, _ in found["n30"].rows] == ["EGNN", "last frame", "straight line"]
    assert row(found["n30"], "EGNN")["position MSE"].text == "5"


def test_a_seed_that_diverged_is_counted_and_an_infinite_error_is_not_left_out(tmp_path):
    for seed in range(3):
        write(tmp_path, Experiment(Data(), "set", seed), 4.0)
        write(tmp_path, Experiment(Data(), "egnn", seed), 4.0)
    lost = result_path(tmp_path, Experiment(Data(), "set", 1).name)
    result = json.loads(lost.read_text())
    del result["test"]
    lost.write_text(json.dumps(result | {"training": {"diverged": True}}))
    infinite = result_path(tmp_path, Experiment(Data(), "egnn", 2).name)
    result = json.loads(infinite.read_text())
    result["test"]["position_mse"]["mean"] = None  # JSON knows no infinity
    infinite.write_text(json.dumps(result))
    table = tables(tmp_path)["baselines"]
    assert row(table, "SET")["seeds"].text == "3, 1 diverged"
    assert row(table, "SET")["position MSE"].text == "4"
    assert row(table, "EGNN")["position MSE"] == Cell(None, "∞")
    assert row(table, "EGNN")["median"].text == "2"


def test_a_training_that_began_again_is_told_and_all_rates_are_shown(tmp_path):
    for seed in range(2):
        write(tmp_path, Experiment(Data(), "set", seed), 4.0)
    other = result_path(tmp_path, Experiment(Data(), "set", 1).name)
    result = json.loads(other.read_text())
    result["training"]["diverged_at"] = [1e-3]
    result |= {
        "rate": 3e-3,
        "settings": settings_of(Experiment(Data(), "set", 1).config(SCALE, 3e-3)),
    }
    other.write_text(json.dumps(result))
    table = tables(tmp_path)["baselines"]
    assert row(table, "SET")["learning rate"] == Cell(1e-3, "0.001, 0.003")
    assert "diverged, and began again at the next best rate: SET 1." in table.notes[1]


def test_a_model_whose_every_training_diverged_still_has_its_row(tmp_path):
    write(tmp_path, Experiment(Data(20), "mlp"), 4.0)
    experiment = Experiment(Data(20), "set")
    write_trials(tmp_path, experiment)
    settings = settings_of(experiment.config(SCALE, 1e-3))
    result = {"rate": 1e-3, "settings": settings, "training": {"diverged": True}}
    result_path(tmp_path, experiment.name).write_text(json.dumps(result))
    cells = row(tables(tmp_path)["n20"], "SET")
    assert cells["seeds"].text == "1, 1 diverged"
    assert cells["position MSE"] == Cell()


def test_results_of_another_scale_are_refused(tmp_path):
    write(tmp_path, Experiment(Data(), "set"), 4.0)
    with pytest.raises(InputError, match="was made with other settings than scale 'paper'"):
        make_tables(Results(tmp_path, SCALES["paper"]))


def test_the_ablation_is_relative_to_set_at_the_same_rate(tmp_path):
    write(tmp_path, Experiment(Data(), "set"), 4.0)  # its trials chose the common rate
    write(tmp_path, Experiment(Data(), "causal", rate=1e-3), 6.0)
    table = tables(tmp_path)["ablation"]
    assert row(table, "causal")["ratio to SET"].text == "1.50×"
    assert row(table, "causal")["validation MSE"].value == 6.0


def test_the_ablation_takes_what_came_out_at_its_rate_and_shows_the_rest_apart(tmp_path):
    """Of seeds that began at a higher one."""
    write(tmp_path, Experiment(Data(), "set"), 4.0)
    experiment = Experiment(Data(), "encodings")
    for seed, rate in enumerate((1e-3, 3e-3)):
        one = dataclasses.replace(experiment, seed=seed)
        training = {"val_mse": 4.0, "diverged_at": [3e-3][: 1 - seed]}
        settings = settings_of(one.config(SCALE, rate))
        write(tmp_path, one, 5.0, rate=rate, settings=settings, training=training)
    write_trials(tmp_path, experiment, best=3e-3)
    table = tables(tmp_path)["ablation"]
    label = MODELS["encodings"].label
    assert row(table, label)["seeds"].text == "1"
    assert row(table, label)["ratio to SET"].text == "1.25×"
    assert row(table, f"{label}, at 0.003")["ratio to SET"] == Cell()
    assert "began again" not in " ".join(table.notes)


def test_models_beyond_the_paper_stand_beside_the_papers(tmp_path):
    near = Data(steps_ahead=1_000)
    write(tmp_path, Experiment(near, "set"), 4.0)
    assert "beyond" not in tables(tmp_path)
    write(tmp_path, Experiment(near, "set-flow"), 2.0)
    clean = {"position_mse": errors(12.0), "velocity_mse": errors(0.3)}
    names = ("model", "last_frame", "straight_line", "least_squares_line")
    write(tmp_path, Experiment(Data(noisy=True), "set-2"), 12.5, clean=dict.fromkeys(names, clean))
    table = tables(tmp_path)["beyond"]
    rows = [(label, cells[0].text) for label, cells in table.rows]
    assert rows == [
        ("SET-Flow", near.title),
        ("SET", near.title),
        ("last frame", near.title),
        ("straight line", near.title),
        ("SET-2", "N = 5, H = 10,000, noisy"),
        ("last frame", "N = 5, H = 10,000, noisy"),
        ("straight line", "N = 5, H = 10,000, noisy"),
    ]
    assert row(table, "SET-Flow")["velocity MSE"].value == pytest.approx(0.2)
    assert row(table, "SET-2")["position MSE"].value == 12.0  # against the clean target
    assert all(len(cells) == len(table.columns) for _, cells in table.rows)


def test_the_noisy_table_has_both_targets_and_the_floor(tmp_path):
    clean = {"position_mse": errors(12.0), "velocity_mse": errors(0.3)}
    names = ("model", "last_frame", "straight_line", "least_squares_line")
    experiment = Experiment(Data(noisy=True), "mlp")
    write(tmp_path, experiment, 12.5, clean=dict.fromkeys(names, clean))
    table = tables(tmp_path)["noisy"]
    assert row(table, "MLP")["noisy target: MSE"].value == 12.5
    assert row(table, "MLP")["clean target: MSE"].value == 12.0
    assert row(table, "floor, about")["clean target: MSE"].value == 9.4
    assert row(table, "floor, about")["noisy target: MSE"].value == pytest.approx(9.9)
    assert "least squares line" in dict(table.rows)


def test_horizons_stand_beside_each_other(tmp_path):
    write(tmp_path, Experiment(Data(steps_ahead=100), "set"), 1e-4)
    write(tmp_path, Experiment(Data(), "set"), 4.0)
    cells = row(tables(tmp_path)["horizons"], "SET")
    assert [cell.text for cell in cells.values()] == [
        "1.0e-04 ± 1.0e-05 (5.0e-05)",
        "–",
        "–",
        "4 ± 0.4 (2)",
    ]
    velocities = row(tables(tmp_path)["horizons-velocity"], "SET")
    assert velocities["H = 10,000"].text == "0.4 ± 0.04 (0.2)"


def test_the_audit_shows_the_bound_for_whoever_it_binds(tmp_path):
    bound = {"audit": "zero targets", "centroid_variance": 0.199}
    write(tmp_path, Experiment(Data(zero=True), "set"), 0.201, **bound)
    write(tmp_path, Experiment(Data(noisy=True, zero=True), "set"), 0.69, **bound)
    write(tmp_path, Experiment(Data(), "set"), 4.0)
    table = tables(tmp_path)["published"]
    cells = row(table, "SET")
    assert cells["zero targets"].value == 0.201
    assert cells["bound"].value == 0.199
    assert cells["true targets"].value == 4.0
    assert cells["zero targets with noise"].value == 0.69
    assert any("AUDIT" in note for note in table.notes)


def test_markdown_has_a_line_for_every_row(tmp_path):
    write(tmp_path, Experiment(Data(20), "set"), 4.0)
    lines = tables(tmp_path)["n20"].to_markdown().splitlines()
    assert lines[0].startswith("|  | parameters | published | seeds | position MSE |")
    assert lines[2].startswith("| SET | 796,058 | 5.72e-11 | 1 | 4 | 0.4 | 2 | 8 |")
    assert len({line.count("|") for line in lines[:5]}) == 1


def test_the_stored_results_give_the_stored_tables():
    """Those of results/cpu are older than some settings, which had their defaults."""
    folder = Path(__file__).parents[2] / "results" / "cpu"
    made = tables(folder)
    assert {path.stem for path in (folder / "tables").iterdir()} == set(made)
    for name, table in made.items():
        assert table.to_markdown() == (folder / "tables" / f"{name}.md").read_text()
    stored = json.loads((folder / "tables.json").read_text())["tables"]
    assert json.loads(json.dumps([asdict(table) for table in made.values()])) == stored
