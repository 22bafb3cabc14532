import numpy as np
import pytest

from spacetime_en import InputError, build_model
from spacetime_en._util.schema import typed
from spacetime_en.data import Task, Trajectories
from spacetime_en.data.compatibility import conform, data_mismatches, facts_of, prepare_for
from spacetime_en.facts import DataFacts

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 6, 4, 3)).cumsum(1)
KNOWN = {"mass": RNG.random(4), "radius": RNG.random(4), "spring": RNG.random((12, 4, 4))}
METRES = {"length_unit": "m", "time_unit": "s"}


def moving(x=X, v=X, **fields):
    return Trajectories.from_arrays(x, v, **({"attributes": KNOWN, "meta": METRES} | fields))


@pytest.fixture(scope="module")
def facts():
    return facts_of(Task.from_trajectories(moving(), length=3, stride=1, target_steps=2))


def test_facts_come_back_from_json(facts):
    assert typed(facts.to_json(), DataFacts, "here") == facts
    assert facts.attributes == {"mass": "node", "radius": "node", "spring": "pair"}
    assert facts.units == {"length": "m", "time": "s"}
    assert (facts.frames, facts.nodes, facts.dims) == (3, 4, 3)
    assert facts.measured_velocities
    assert not facts.box


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"frame_time": float("nan")}, "here: frame_time: expected a positive number"),
        ({"frame_time": -1.0}, "here: frame_time: expected a positive number"),
        ({"horizon_times": [0]}, r"here: horizon_times\[0\]: expected a positive number"),
        ({"horizon_times": [float("inf")]}, r"here: horizon_times\[0\]: expected a finite number"),
        ({"horizon_times": [2, 1]}, "here: horizon_times: expected increasing numbers"),
        ({"origin": [float("nan")] * 3}, r"here: origin\[0\]: expected a"),
        ({"origin": [0.0]}, "here: origin: expected 3 numbers, found 1"),
    ],
)
def test_facts_that_cannot_be(facts, changes, sentence):
    with pytest.raises(InputError, match=sentence):
        typed(facts.to_json() | changes, DataFacts, "here")


def test_attributes_are_known_by_their_names(facts):
    extra = {"age": RNG.random(4)} | dict(reversed(KNOWN.items()))
    other = moving(attributes=extra)
    arranged = conform(facts, other)
    assert list(arranged.attributes) == ["mass", "radius", "spring"]
    for name, stacked in arranged.attributes.items():
        assert np.array_equal(stacked, other.attributes[name])
    assert conform(facts, moving()).attributes.keys() == KNOWN.keys()
    assert data_mismatches(facts, other) == [
        "age: the model was trained without it; it is not read."
    ]
    assert data_mismatches(facts, moving()) == []


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"x": X[..., :2], "v": X[..., :2]}, "x: .* trained in 3 dimensions, and the data have 2"),
        ({"box": [9.0, 9.0, 9.0]}, "box: .* trained in open space, .* are in a periodic box"),
        ({"v": None}, "v: .* velocities that were measured, .* have differences of frames"),
        (
            {"attributes": {"radius": np.ones(4), "spring": KNOWN["spring"]}},
            "mass: .* with this attribute of each node, and the data have radius, spring instead",
        ),
        ({"attributes": {}}, "mass: .* and the data have no attributes; give"),
        (
            {"attributes": KNOWN | {"mass": KNOWN["spring"]}},
            "mass: .* with one for each node, and the data have one for each pair",
        ),
    ],
)
def test_data_of_another_kind_are_refused_in_one_sentence(facts, fields, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        conform(facts, moving(**fields))
    assert str(error.value).endswith("give data of the same kind, or train on such.")


def test_and_the_other_way_round():
    boxed = moving(v=None, box=[99.0, 99.0, 99.0], attributes={})
    facts = facts_of(Task.from_trajectories(boxed, length=3, stride=1, target_steps=2))
    with pytest.raises(InputError, match="in a periodic box, and the data are in open space"):
        conform(facts, moving(v=None, attributes={}))
    with pytest.raises(InputError, match="were differences of frames, and the data have measured"):
        conform(facts, moving(box=[99.0, 99.0, 99.0], attributes={}))


def test_units_of_another_name_are_told(facts):
    assert data_mismatches(facts, moving(meta={"length_unit": "cm", "time_unit": "s"})) == [
        "length_unit: the model was trained on data in m, these are in cm."
    ]
    assert data_mismatches(facts, moving(meta={})) == []  # unknown


def test_a_model_that_sees_places_keeps_the_origin_of_its_training(facts):
    far = moving(X + 5e6)
    for preset, origin in (("mlp", np.zeros(3)), ("egnn", far.origin)):
        graph, _ = Task.from_trajectories(moving(), length=3, stride=1, target_steps=2).train[:1]
        model = build_model(preset, like=graph)
        assert np.array_equal(prepare_for(model, far)[1], far.origin)  # no model has seen it yet
        model.trained_on = facts
        assert np.array_equal(prepare_for(model, far)[1], origin)


def test_data_that_call_nothing_up_have_the_up_of_the_training(facts):
    task = Task.from_trajectories(moving(), length=3, stride=1, target_steps=2, up=(0, 0, 1))
    trained = facts_of(task)
    assert facts.up is None
    assert typed(trained.to_json(), DataFacts, "here") == trained
    assert conform(trained, moving()).meta["up"] == [0, 0, 1]
    own = moving(meta=METRES | {"up": [0, 1, 0]})
    assert conform(trained, own).meta["up"] == [0, 1, 0]
    assert "up" not in conform(facts, moving()).meta
