"""What every model has from its base class."""

import math
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from spacetime_en import PRESETS, Forecaster, InputError, LastFrame
from spacetime_en.nn.presets import arguments_of


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
