"""A file's claims are believed up to its length, and up to the available memory."""

import pytest

from spacetime_en import InputError
from spacetime_en._util import machine
from spacetime_en.data.limits import MOST_EXPANSION, check_claim, check_memory


def test_a_file_can_expand_as_far_as_deflate_can_and_no_further():
    check_claim(MOST_EXPANSION * 100, 100, "a.npz")
    with pytest.raises(InputError, match=r"a\.npz: claims .* damaged, or was made to do harm"):
        check_claim(MOST_EXPANSION * 100 + 1, 100, "a.npz")


def test_what_does_not_fit_in_memory_is_refused(monkeypatch):
    monkeypatch.setattr(machine, "free_memory", lambda: 2400)
    check_memory(100, "a.npz")
    with pytest.raises(InputError, match=r"a\.npz: .* cut it into smaller files"):
        check_memory(101, "a.npz")
