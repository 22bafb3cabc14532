"""The report of the paper's experiments."""

import json
import re

from spacetime_en.compare.results import result_path
from spacetime_en.reproduce.plan import SCALES, Data, Experiment
from spacetime_en.reproduce.report import write_report
from tests.reproduce.test_experiment import carried_out  # noqa: F401  (a fixture)


def nothing_finite(value):
    """The same with null for every number, as for a model that blew up."""
    if isinstance(value, dict):
        return {key: nothing_finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [nothing_finite(item) for item in value]
    return None if isinstance(value, float) else value


def test_a_model_that_blew_up_does_not_take_the_report_along(carried_out, tmp_path):  # noqa: F811
    scale = SCALES["quick"]
    for model in ("set", "mlp"):
        carried_out(Experiment(Data(), model), scale)
    path = result_path(tmp_path, Experiment(Data(), "set").name)
    result = json.loads(path.read_text())
    for part in ("test", "shown", "attention"):
        result[part] = nothing_finite(result[part])
    path.write_text(json.dumps(result))
    made = write_report(tmp_path, scale).read_text()
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', made, re.S)
    data = json.loads(text)
    rows = dict(data["tables"][0]["rows"])
    assert "∞" in {cell["text"] for cell in rows["SET"]}
    assert "SET" not in {c["label"] for panel in data["panels"][:1] for c in panel["curves"]}
    assert "SET" not in data["scenes"][0]["forecasts"]
    assert data["attention"] == []
