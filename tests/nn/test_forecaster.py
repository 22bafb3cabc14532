"""What every model has from its base class."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch

from spacetime_en import PRESETS, Forecaster, InputError, LastFrame, build_model
from spacetime_en.nn.presets import arguments_of
from tests.helpers import particles


def arguments_with_types() -> list[Any]:
    models = {preset.model for preset in PRESETS.values()}
    return [
        pytest.param(model, name, hint, id=f"{model.__name__}-{name}")
        for model in sorted(models, key=lambda model: model.__name__)
        if arguments_of(model)
        for name, hint in get_type_hints(model.__init__).items()
        if name != "return"
    ]


@pytest.mark.parametrize(("model", "name", "hint"), arguments_with_types())
def test_arguments_are_what_their_types_say(model: type[Forecaster], name: str, hint: Any) -> None:
    kinds = get_args(hint) or (hint,)
    wrong: list[Any] = [object(), [[]], b"bytes", 1j]
    if int in kinds:
        wrong += [-1, 2.5, "3", True, math.nan, 10**30]
    elif float in kinds:
        wrong += ["3", True, math.nan, math.inf, -math.inf]
    elif bool in kinds:
        wrong += [1, "yes", None]
    elif str in kinds or all(isinstance(kind, str) for kind in kinds):
        wrong += [3, "not one of them"]
    tied = {"nodes": 3} if "nodes" in arguments_of(model) else {}
    for value in wrong:
        with pytest.raises(InputError, match=rf"^{name}: (\[0\]: )?expected ") as error:
            model(**(tied | {name: value}))
        assert "\n" not in str(error.value)


def test_numbers_of_numpy_are_numbers() -> None:
    class Counted(LastFrame):
        def __init__(self, count: int = 1, size: float = 1.0) -> None:
            super().__init__()

    counted = Counted(np.int64(3), np.float32(0.5))
    assert counted.config == {"count": 3, "size": 0.5}
    assert type(counted.config["count"]) is int


def test_types_that_are_not_of_json_are_the_models_own_matter() -> None:
    class Free(LastFrame):
        def __init__(self, f: Callable[[int], int] = abs, either: int | type = int, any=3) -> None:  # type: ignore[no-untyped-def]
            super().__init__()

    assert Free(either=bool, any="thing").config == {"f": abs, "either": bool, "any": "thing"}


def facts(frame_time: float, *horizon_times: float) -> Any:
    """What `trained_on` tells of a model's training."""
    return SimpleNamespace(frame_time=frame_time, horizon_times=horizon_times)


def test_one_horizon_is_rolled_out_where_it_is_the_time_between_frames() -> None:
    graph = particles(horizon=[[1.0, 2.0]] * 3)
    model = build_model("egnn", hidden=8).double()
    path = model(graph)
    for trained_on in (None, facts(1.0, 1.0), facts(1.0, 2.0, 3.0)):
        model.trained_on = trained_on
        assert torch.equal(model(graph).x, path.x)
    model.trained_on = facts(1.0, 4.0)
    message = "horizon: this model was trained to forecast 4 ahead, from frames 1 apart"
    with pytest.raises(InputError, match=message):
        model(graph)
    with pytest.raises(InputError, match=message):
        model.at(graph, [2.0])
    assert model(graph.replace(horizon=4.0)).x.shape == (3, 1, 4, 3)


def test_another_time_is_asked_for_by_its_number() -> None:
    """A model that knows one step takes two to a time that is twice as far."""
    graph = particles()
    model = build_model("egnn", hidden=8).double()
    path = model.at(graph, [1.0, 2.0])
    assert torch.equal(path.x[:, :1], model(graph).x)
    assert torch.equal(model.at(graph, [2.0]).x, path.x[:, 1:])
    assert model.at(graph, 2.0).times.tolist() == [[2]] * 3
    with pytest.raises(InputError, match="graph: expected a SpacetimeGraph"):
        model.at(graph.x, [1.0])
