import pytest

from spacetime_en import InputError
from spacetime_en._util.schema import argument
from spacetime_en.data.steps import MOST_TARGETS, TargetSteps, parse_steps


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        (12, (12,)),
        ("12", (12,)),
        ("1e3", (1000,)),
        ("1..4", (1, 2, 3, 4)),
        (" 1 .. 3 , 7", (1, 2, 3, 7)),
        ("1,2,4", (1, 2, 4)),
        ([1, 2, 4], (1, 2, 4)),
        (range(1, 4), (1, 2, 3)),
    ],
)
def test_targets_are_numbers_or_words(given, steps):
    assert parse_steps(argument("target_steps", given, TargetSteps)) == steps


@pytest.mark.parametrize("given", ["", "a", "1..", "-1", "1;2", "4..2", "2,1", "0", "1,,2", ()])
def test_what_is_none_is_told_in_one_sentence(given):
    with pytest.raises(InputError, match=r"target_steps: .* such as 12, 1\.\.12 or 1,2,4, found"):
        parse_steps(given)


def test_a_typing_mistake_does_not_fill_the_memory():
    with pytest.raises(InputError, match=f"at most {MOST_TARGETS} targets"):
        parse_steps("1..1000000000000")
