"""The report of a comparison: the leaderboard's numbers, curves, and the worst windows."""

import json
import re

import numpy as np

from spacetime_en.compare.results import read_result


def shown_in(path):
    (text,) = re.findall(
        r'<script id="data" type="application/json">(.*?)</script>', path.read_text(), re.S
    )
    return json.loads(text)


def test_it_shows_the_leaderboard_curves_and_the_worst_windows_first(compared):
    data, board = shown_in(compared.report), compared.leaderboard
    (table,) = data["tables"]
    assert [label for label, _ in table["rows"]] == [row.preset for row in board.rows]
    assert [cells[0]["value"] for _, cells in table["rows"]] == [row.error for row in board.rows]
    assert data["what"] == " ".join(board.words())
    assert {panel["name"] for panel in data["panels"]} == {"learning_curves"}
    trained = {"egnn", "linear"}
    assert {curve["label"] for curve in data["panels"][0]["curves"]} == trained
    judged = read_result(compared.folder, f"test--{board.chosen}")
    errors = np.mean([seed["position"] for seed in judged["seeds"]], axis=0)
    titles = [scene["title"] for scene in data["scenes"]]
    worst = np.argsort(-errors)[:6]
    assert titles == [f"charged, test window {window}" for window in worst]
    assert board.chosen in data["scenes"][0]["forecasts"]
    assert len(data["scenes"][0]["forecasts"]) == 3
