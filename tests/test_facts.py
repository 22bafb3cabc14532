"""The facts about a model's training data survive JSON."""

import dataclasses
import json

import pytest

from spacetime_en.facts import DataFacts

FACTS = DataFacts(
    label="charged",
    fingerprint="a",
    trajectories="b",
    windows={"train": 3, "val": 1, "test": 1},
    frames=10,
    nodes=5,
    dims=3,
    features=1,
    edge_features=1,
    frame_time=0.01,
    horizon_times=(1.0, 2.0),
    attributes={"charge": "node"},
    measured_velocities=True,
    box=False,
    units={},
    origin=(0.0, 1.0, 2.0),
)


def test_they_are_plain_values():
    plain = FACTS.to_json()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["origin"] == [0.0, 1.0, 2.0]


def test_the_origin_has_as_many_numbers_as_space_has_dimensions():
    with pytest.raises(ValueError, match="origin: expected 2 numbers, found 3"):
        dataclasses.replace(FACTS, dims=2)
