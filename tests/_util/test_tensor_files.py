"""Tensors in files: what was saved is read back, and pickles are rejected."""

import pytest
import torch
from safetensors.torch import save_file

from spacetime_en import InputError
from spacetime_en._util.tensor_files import read_tensor_header, read_tensors


@pytest.fixture
def path(tmp_path):
    tensors = {
        "net.weight": torch.randn(2, 3),
        "net.steps": torch.arange(4),
        "other": torch.ones(1),
    }
    save_file(tensors, tmp_path / "a.safetensors", metadata={"made by": "a test"})
    return tmp_path / "a.safetensors"


def test_the_header_says_shapes_and_types_without_the_tensors(path):
    header = read_tensor_header(path)
    assert header.metadata == {"made by": "a test"}
    assert header.tensors["net.weight"] == (torch.float32, (2, 3))
    assert header.tensors["net.steps"] == (torch.int64, (4,))


def test_a_part_is_read_without_its_prefix(path):
    tensors = read_tensors(path, "net.")
    assert set(tensors) == {"weight", "steps"}
    assert torch.equal(tensors["steps"], torch.arange(4))


def test_pickles_and_truncated_files_are_refused(path, tmp_path):
    torch.save({}, tmp_path / "a.pt")
    with pytest.raises(InputError, match=r"a\.pt: is a pickle"):
        read_tensors(tmp_path / "a.pt")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match="not a whole safetensors file"):
        read_tensor_header(path)
