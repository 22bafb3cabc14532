"""Error messages: the nearest name, the missing extra, no terminal control characters."""

import pytest

from spacetime_en._util.errors import InputError, amount, in_short, no_such, printable, require


def test_a_misspelt_name_gets_the_nearest_one_and_others_the_whole_list():
    assert str(no_such("preset", "egn", ["set", "egnn"])).endswith("did you mean 'egnn'?")
    assert str(no_such("preset", "xyz", ["set", "egnn"])).endswith("expected one of set, egnn.")
    assert str(no_such("setting", "x", [])) == "setting: there is no 'x'; there are none."


def test_control_characters_are_shown_as_their_escapes():
    assert printable("a\x1b[2Jé\n", keep="\n") == r"a\x1b[2Jé" + "\n"


def test_a_missing_package_is_said_with_its_extra():
    assert require("json", "any").dumps([]) == "[]"
    with pytest.raises(ImportError, match=r"pip install 'spacetime-en\[h5md\]'"):
        require("no_such_package", "h5md")


def test_an_error_in_short_is_one_line_with_its_kind_unless_it_is_meant_for_users():
    assert in_short(RuntimeError("no luck\nand a page of details")) == "RuntimeError: no luck"
    assert in_short(InputError("seeds: expected 3.\nMore.")) == "seeds: expected 3"
    assert in_short(ValueError()) == "ValueError"
    assert in_short(OSError(2, "No such file")) == "[Errno 2] No such file"


def test_one_is_no_plural():
    assert [amount(number, "row") for number in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
