"""Whatever the files of a model claim, loading gives a model or one short sentence."""

import json
import math
import re
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from spacetime_en import PRESETS, Forecaster, InputError, LastFrame, build_model
from spacetime_en.nn.loading import build
from tests.helpers import SMALL


def saved(folder: Path, preset: str = "set", **settings: Any) -> Path:
    settings = (SMALL if preset in ("set", "set-adjacency") else {}) | settings
    return build_model(preset, nodes=5, **settings).save_pretrained(folder)


def claims(folder: Path, **changes: Any) -> None:
    """Change what the config says, beside the file and in its header."""
    config = json.loads((folder / "config.json").read_text()) | changes
    weights = load_file(folder / "model.safetensors")
    save_file(weights, folder / "model.safetensors", {"config": json.dumps(config)})
    (folder / "config.json").write_text(json.dumps(config))


def refused(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        Forecaster.from_pretrained(folder)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 500
    assert str(folder) in sentence
    return sentence


HUGE = [
    ("set", {"layers": 10**6}),
    ("set", {"layers": 2**53}),
    ("set", {"blocks": 10**6, "spatial": False, "temporal": False}),
    ("set", {"hidden": 10**9}),
    ("set", {"hidden": 2**53}),
    ("set", {"features": 2**40}),
    ("set-adjacency", {"nodes": 10**6}),
    ("lstm", {"nodes": 10**6}),
    ("mlp", {"layers": 10**12}),
    ("mlp", {"hidden": 10**5}),
    ("estag", {"frames": 10**6}),
    ("estag", {"blocks": 10**9}),
    ("body", {"nodes": 10**6}),
    ("body", {"context": 10**9, "hidden": 10**6}),
    ("kernel", {"centres": 10**9}),
    ("kernel", {"parents": list(range(100_000))}),
    ("ridge", {"nodes": 10**6}),
    ("ridge-shared", {"frames": 10**12}),
    ("set-flow", {"node_features": 10**9}),
    ("set-flow", {"steps": 10**9}),
    ("set-2", {"samples": 10**9}),
    ("egnn", {"edge_features": 10**10}),
    ("tfn", {"features": 10**9}),
    ("tfn", {"hidden": 10**9}),
]


@pytest.mark.parametrize(("preset", "settings"), HUGE)
def test_a_config_is_believed_as_far_as_the_weights_go(
    preset: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    folder = saved(tmp_path / "m", preset)
    claims(folder, **settings)
    sentence = refused(folder)  # (and not after minutes: that other weights were expected)
    assert re.search("more than|at most|too many|cannot be built|numbers of joints", sentence)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_can_be_tried_without_memory(preset: str) -> None:
    # (Or the sizes of its tensors would be seen only after they are filled.)
    with torch.device("meta"):
        model = build_model(preset, nodes=5)
    assert all(tensor.is_meta for tensor in model.state_dict().values())


def test_trying_draws_no_numbers() -> None:
    def weights() -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        return build(lambda: build_model("set", **SMALL), "here").state_dict()

    torch.manual_seed(0)
    plain = build_model("set", **SMALL).state_dict()
    assert all(torch.equal(plain[name], tensor) for name, tensor in weights().items())


def test_a_constructor_that_looks_at_numbers_is_no_problem(tmp_path: Path) -> None:
    class Looking(LastFrame):
        def __init__(self, size: float = 2.0) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((int(torch.tensor(size).item()),), 3.0))

    Looking().save_pretrained(tmp_path)
    assert Forecaster.from_pretrained(tmp_path).weight.shape == (2,)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden": -4}, "hidden: expected a positive whole number, found -4"),
        ({"hidden": "16"}, "hidden: expected a positive whole number, found '16'"),
        ({"hidden": None}, "hidden: expected a positive whole number, found None"),
        ({"hidden": 10**40}, "hidden: expected a positive whole number, at most 9007"),
        ({"dropout": 7}, "dropout: expected a number from 0 to 1, found 7"),
        ({"dropout": math.nan}, "dropout: expected a number from 0 to 1, found nan"),
        ({"adjacency": "all"}, "adjacency: expected 'flattened' or .* 'matrices' or None"),
        ({"length_scale": 0.0}, "length_scale: expected a positive number, found 0.0"),
        ({"causal": "no"}, "causal: expected true or false, found 'no'"),
        ({"widht": 3}, "does not fit its class .*widht"),
        ({"model": ["SET"]}, "names a model"),
        ({"model": "os.system"}, "holds a model of class 'os.system'"),
        ({"format": 2}, "its format is 2, this version of spacetime-en reads 1; was it written"),
        ({"format": "new"}, "its format is 'new'"),
        ({"blocks": 3}, "holds the weights of another model"),
    ],
)
def test_wrong_configs(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    claims(folder, **changes)
    with pytest.raises(InputError, match=words):
        Forecaster.from_pretrained(folder)
    refused(folder)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_weights_that_are_no_numbers_are_refused_by_name(number: float, tmp_path: Path) -> None:
    path = saved(tmp_path, "set", **SMALL) / "model.safetensors"
    weights = load_file(path)
    weights["blocks.0.egnn.embed.bias"][3] = number
    save_file(weights, path)
    assert "'blocks.0.egnn.embed.bias' holds NaN or infinite numbers" in refused(tmp_path)


@pytest.mark.parametrize(
    "dtype", [torch.int32, torch.complex64, torch.float8_e4m3fn, torch.bool, torch.uint64]
)
def test_weights_of_another_kind_are_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", "linear")
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["beta"] = torch.ones((), dtype=torch.float32).to(dtype)
    save_file(weights, path)
    assert "'beta' is " in refused(folder)


def test_half_precision_is_a_precision(tmp_path: Path) -> None:
    build_model("linear").to(torch.bfloat16).save_pretrained(tmp_path)
    assert Forecaster.from_pretrained(tmp_path).alpha.dtype == torch.bfloat16


def header(text: bytes, length: int | None = None, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text + data


@pytest.mark.parametrize(
    "content",
    [
        header(b"{}", length=2**60),
        header(b"{}", length=0),
        header(b"[]"),
        header(b"{" * 1000),
        header(b"\xff\xfe{}"),
        header(b'{"a": {"dtype": "F32", "shape": [1099511627776], "data_offsets": [0, 4]}}'),
        header(b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}', data=b"1234"),
        header(b'{"a": {"dtype": "F9", "shape": [1], "data_offsets": [0, 4]}}', data=b"1234"),
        header(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}', data=b"1234"),
        header(b'{"a": {"dtype": "F32", "shape": [0, 1099511627776], "data_offsets": [0, 0]}}'),
        header(b'{"__metadata__": {"config": 3}}'),
        header(b'{"__metadata__": {"config": "{"}}'),
        b"",
        b"\x80\x04.",
    ],
)
def test_headers_that_lie(content: bytes, tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(content)
    refused(folder)
