import json
import sys

import pytest
import torch
from safetensors.torch import save_file

from spacetime_en import (
    SET,
    Forecaster,
    InputError,
    LastFrame,
    SpacetimeGraph,
    Symmetries,
    build_model,
)
from spacetime_en.cli import main
from spacetime_en.data.compatibility import facts_of
from spacetime_en.nn.pretrained import SHELF
from spacetime_en.runs.run import Run
from tests.helpers import SMALL, is_aligned, particles


@pytest.fixture
def model():
    torch.manual_seed(0)
    return SET(encodings="W", dropout=0.2, **SMALL).eval()


@pytest.mark.parametrize("preset", ["set", "lstm", "kernel"])
def test_what_is_loaded_lies_in_memory_as_what_was_built(preset, tmp_path):
    # Matrix products may go another way, to other last bits, from anywhere else.
    model = build_model(preset, nodes=5)
    loaded = Forecaster.from_pretrained(model.save_pretrained(tmp_path / "m"))
    assert is_aligned(model.state_dict())
    assert is_aligned(loaded.state_dict())


def test_the_folder_follows_the_hubs_layout(model, tmp_path):
    model.save_pretrained(tmp_path)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model"] == "SET"
    assert config["encodings"] == "W"


@pytest.mark.parametrize("name", ["folder", "file.safetensors"])
def test_what_a_model_was_trained_on_is_kept(model, tiny_task, tmp_path, name):
    assert SET.from_pretrained(model.save_pretrained(tmp_path / f"new-{name}")).trained_on is None
    model.trained_on = facts_of(tiny_task)
    loaded = SET.from_pretrained(model.save_pretrained(tmp_path / name))
    assert loaded.trained_on == model.trained_on
    assert Forecaster.from_pretrained("pretrained:charged").trained_on.attributes == {
        "charge": "node"
    }


def test_precision_is_kept(model, tmp_path):
    model.double().save_pretrained(tmp_path)
    assert next(SET.from_pretrained(tmp_path).parameters()).dtype == torch.float64


def test_each_weight_keeps_its_own_precision_and_buffers_their_kind(tmp_path):
    class Counted(LastFrame):
        def __init__(self) -> None:
            super().__init__()
            self.single = torch.nn.Parameter(torch.ones(1))
            self.double_ = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
            self.register_buffer("steps", torch.tensor([3]))

    Counted().save_pretrained(tmp_path)
    loaded = Counted.from_pretrained(tmp_path)
    dtypes = (loaded.single.dtype, loaded.double_.dtype, loaded.steps.dtype)
    assert dtypes == (torch.float32, torch.float64, torch.int64)


def test_a_subclass_with_arguments_of_its_own_works_and_comes_back(tmp_path):
    class Wide(SET):
        def __init__(self, width: int = 8) -> None:
            super().__init__(hidden=width, blocks=1)

    model = Wide(16).eval()
    graph = particles(dtype=torch.float32)
    model.save_pretrained(tmp_path)
    loaded = Forecaster.from_pretrained(tmp_path)
    assert isinstance(loaded, Wide)
    assert loaded.config == {"width": 16}
    assert torch.equal(loaded(graph).x, model(graph).x)


def test_settings_can_be_replaced_on_loading(model, tmp_path):
    model.save_pretrained(tmp_path)
    assert SET.from_pretrained(tmp_path, dropout=0.0).config["dropout"] == 0.0


def test_a_users_own_model_is_saved_and_loaded(tmp_path):
    class Damped(LastFrame):
        def __init__(self, factor: float = 0.5) -> None:
            super().__init__()
            self.factor = factor

        @property
        def symmetries(self) -> Symmetries:
            return Symmetries(True, True, True)

    Damped(0.25).save_pretrained(tmp_path)
    loaded = Forecaster.from_pretrained(tmp_path)
    assert isinstance(loaded, Damped)
    assert loaded.factor == 0.25


def test_a_model_must_name_its_arguments():
    with pytest.raises(TypeError, match="name all arguments"):

        class Vague(LastFrame):
            def __init__(self, **anything) -> None:
                super().__init__()


def spoil(path, how):
    weights = path / "model.safetensors"
    if how == "truncated":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif how == "empty":
        weights.write_bytes(b"")
    elif how == "a pickle":
        torch.save({"a": torch.ones(1)}, weights)
    elif how == "an old pickle":
        torch.save({"a": torch.ones(1)}, weights, _use_new_zipfile_serialization=False)
    elif how == "of other sizes":
        save_file(SET(**(SMALL | {"hidden": 8})).state_dict(), weights)  # without our header
    elif how == "of the same sizes":
        SET(causal=True, **SMALL).save_pretrained(weights)
    elif how == "of another class":
        build_model("mlp").save_pretrained(path)
    elif how == "with more layers":
        save_file(SET(**(SMALL | {"blocks": 3})).state_dict(), weights)
    elif how == "without config":
        (path / "config.json").unlink()
    elif how == "with a broken config":
        (path / "config.json").write_text("{")
    elif how == "with an unknown setting":
        save_file(SET(**SMALL).state_dict(), weights)
        (path / "config.json").write_text('{"model": "SET", "widht": 3}')
    elif how == "with a config of bytes":
        (path / "config.json").write_bytes(b"\xff\xfe")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated", "is not a whole safetensors file .* may be truncated"),
        ("empty", "is not a whole safetensors file"),
        ("a pickle", "is a pickle .* only safetensors files are read"),
        ("an old pickle", "is a pickle"),
        ("of other sizes", r"another model: for .* expected shape \(.*\), found shape"),
        ("of another class", "holds a model of class 'MLP', expected SET"),
        ("of the same sizes", "is not the config that model.safetensors was saved with"),
        ("with a config of bytes", "is not a text file in UTF-8"),
        ("with more layers", "another model: 'blocks.2.* has no place"),
        ("without config", "config.json is missing"),
        ("with a broken config", "not valid JSON"),
        ("with an unknown setting", r"does not fit its class .*widht"),
    ],
)
def test_bad_files_are_told_in_one_sentence(model, tmp_path, how, message):
    model.save_pretrained(tmp_path)
    spoil(tmp_path, how)
    with pytest.raises(InputError, match=message) as error:
        SET.from_pretrained(tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_header_whose_length_looks_like_a_pickle_is_none(tmp_path):
    path = build_model("linear").save_pretrained(tmp_path / "m.safetensors")
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    longer = next(n for n in (0x280, 0x380, 0x480, 0x580) if n >= length)
    header = whole[8 : 8 + length].ljust(longer)
    path.write_bytes(longer.to_bytes(8, "little") + header + whole[8 + length :])
    assert type(Forecaster.from_pretrained(path)).__name__ == "LinearDynamics"


def test_a_path_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere: expected a model folder or file"):
        SET.from_pretrained(tmp_path / "nowhere")


def test_a_failed_save_keeps_the_old_model(model, tmp_path, monkeypatch):
    model.save_pretrained(tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()

    def full(*args, **kwargs):
        args[1].write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spacetime_en.nn.pretrained.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        SET(**SMALL).save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2


def test_a_hub_name_is_downloaded(model, tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    model.save_pretrained(tmp_path)
    asked = []

    def download(name, allow_patterns, revision, token, cache_dir):
        asked.append((name, allow_patterns, revision))
        return str(tmp_path)

    monkeypatch.setattr(hub, "snapshot_download", download)
    loaded = SET.from_pretrained("someone/some-set", revision="v1")
    assert asked == [("someone/some-set", ["config.json", "model.safetensors"], "v1")]
    assert loaded.config == model.config


def test_a_name_that_is_neither_here_nor_on_the_hub_is_told_so(monkeypatch):
    hub = pytest.importorskip("huggingface_hub")

    def offline(*args, **kwargs):
        raise ConnectionError("no network")

    monkeypatch.setattr(hub, "snapshot_download", offline)
    message = r"models/nowhere: there is no such folder or file here, and the Hub .*ConnectionError"
    with pytest.raises(InputError, match=message):
        SET.from_pretrained("models/nowhere")
    with pytest.raises(InputError, match="nowhere: expected a model folder or file"):
        SET.from_pretrained("./nowhere")


def test_a_model_is_pushed_to_the_hub(model, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    uploaded = []
    monkeypatch.setattr(hub, "create_repo", lambda name, **options: None)

    def upload(repo_id, folder_path, token):
        uploaded.append(SET.from_pretrained(folder_path).config)
        return "address"

    monkeypatch.setattr(hub, "upload_folder", upload)
    assert model.push_to_hub("someone/some-set") == "address"
    assert uploaded == [model.config]


def test_without_the_extra_the_hub_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install 'spacetime-en\[hub\]'"):
        SET.from_pretrained("someone/some-set")


# --- what comes with the package ------------------------------------------------------------------

SHIPPED = [path.name for path in SHELF.iterdir() if path.is_dir()]


def test_there_are_shipped_models():
    assert {"egnn-nbody", "charged", "pedestrians"} <= set(SHIPPED)


def like_the_data_of(model):
    """A graph as the model knows them: particles with charges, or tracks of positions."""
    facts = model.trained_on
    if facts.measured_velocities:
        return particles(dtype=torch.float32, horizon=0.5)
    steps = torch.randn(2, facts.frames, 4, facts.dims, generator=torch.Generator().manual_seed(0))
    return SpacetimeGraph.from_positions(
        steps.cumsum(1),
        times=torch.arange(facts.frames) * facts.frame_time,
        horizon=torch.tensor(facts.horizon_times).expand(2, -1),
    )


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_forecasts_with_three_lines_and_tells_what_it_is(name):
    model = Forecaster.from_pretrained(f"pretrained:{name}")
    graph = like_the_data_of(model)
    line = build_model("straight-line")(graph)
    assert (model(graph).x - line.x).abs().max() > 0.01
    card = (SHELF / name / "README.md").read_text()
    for said in ("Data", "Command", "Seed", "Errors", "Limits"):
        assert f"**{said}" in card
    run = Run.open(f"pretrained:{name}")
    assert run.is_shipped
    assert torch.equal(run.model()(graph).x, model(graph).x)


def test_a_shipped_model_nobody_shipped():
    with pytest.raises(InputError, match=r"there is no 'chraged'; did you mean 'charged'"):
        Forecaster.from_pretrained("pretrained:chraged")


def test_evaluating_a_shipped_model_writes_nothing_into_the_package(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = sorted(SHELF.rglob("*"))
    sizes = ["--task.counts", "8", "4", "4", "--task.target_steps", "10"]
    command = ["spacetime", "evaluate", "pretrained:charged", *sizes, "--json"]
    monkeypatch.setattr(sys, "argv", command)
    main()
    report = json.loads(capsys.readouterr().out)
    assert report["position_mse"]["mean"] < 0.1 * report["straight_line"]["mean"]
    assert sorted(SHELF.rglob("*")) == before
    assert len(list((tmp_path / "evaluation").iterdir())) == 2
