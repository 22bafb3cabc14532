"""Arrays in ``.npy`` files: read as NumPy does, or rejected in a sentence."""

import io

import numpy as np
import pytest

from spacetime_en import InputError
from spacetime_en.data.npy import read_header, read_rest


def saved(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    length = file.tell()
    file.seek(0)
    return file, length


@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_wrote_is_read(order):
    array = np.asarray(np.arange(24.0).reshape(2, 3, 4), order=order)
    file, length = saved(array)
    assert np.array_equal(read_rest(file, read_header(file, length, "a.npy")), array)


@pytest.mark.parametrize("cut", [-8, 8])
def test_a_file_of_another_length_than_its_shape_is_refused(cut):
    file, length = saved(np.arange(24.0))
    with pytest.raises(InputError, match=r"a\.npy: is cut off or damaged"):
        read_header(file, length + cut, "a.npy")


def test_objects_and_other_files_are_refused():
    file, length = saved(np.array([{}], dtype=object))
    with pytest.raises(InputError, match="expected numbers"):
        read_header(file, length, "a.npy")
    with pytest.raises(InputError, match=r"is no \.npy file of an array"):
        read_header(io.BytesIO(b"PK\x03\x04"), 4, "a.npy")
