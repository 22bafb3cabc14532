import pytest

from spacetime_en import LSTM, SET, InputError, build_model
from spacetime_en.nn.layers.egcl import EGCL
from tests.helpers import particles

# Tables 1-5 of the paper.
COUNTS = {
    "set": {5: 796_058, 20: 796_058, 30: 796_058},
    "set-nonequivariant": {5: 796_244, 20: 796_244, 30: 796_244},
    "set-adjacency": {5: 810_458},
    "set-no-temporal": {5: 796_049, 20: 796_049, 30: 796_049},
    "lstm": {5: 826_313, 20: 1_269_833, 30: 1_859_513},
    "egnn": {5: 100_612, 20: 100_612, 30: 100_612},
    "mlp": {5: 67_718, 20: 67_718, 30: 67_718},
    "linear": {5: 3, 20: 3, 30: 3},
    "last-frame": {5: 0, 20: 0, 30: 0},
    "straight-line": {5: 0, 20: 0, 30: 0},
}


@pytest.mark.parametrize(
    ("preset", "nodes", "count"), [(p, n, c) for p, row in COUNTS.items() for n, c in row.items()]
)
def test_parameter_counts_are_the_papers(preset, nodes, count):
    model = build_model(preset, nodes=nodes)
    assert sum(p.numel() for p in model.parameters()) == count


def test_presets_have_the_papers_settings():
    paper = dict(hidden=128, layers=2, blocks=3, dropout=0.1, features=1, edge_features=1)
    attention = dict(step=0.5, scaled=True, causal=False, encodings="", residual=True)
    for preset in ("set", "set-nonequivariant", "set-adjacency", "set-no-temporal"):
        config = build_model(preset, nodes=5).config
        assert (paper | attention).items() <= config.items()
        assert config["equivariant"] == (preset != "set-nonequivariant")
        assert config["adjacency"] == ("flattened" if preset == "set-adjacency" else None)
        assert config["temporal"] == (preset != "set-no-temporal")
    assert paper.items() <= build_model("lstm", nodes=5).config.items()
    for preset, residual in (("set", True), ("egnn", True), ("lstm", False)):
        model = build_model(preset, nodes=5)
        layers = [m for m in model.modules() if isinstance(m, EGCL)]
        assert len(layers) == (3 if preset == "egnn" else 6)
        assert all(layer.residual == residual for layer in layers)
    mlp = [type(m).__name__ for m in build_model("mlp").network]
    assert mlp == ["Linear", "ReLU"] * 5 + ["Linear"]


def test_settings_replace_the_presets_own():
    model = build_model("set", hidden=32, dropout=0.0, nodes=5)
    assert isinstance(model, SET)
    assert model.config["hidden"] == 32
    assert model.config["nodes"] is None  # ignored: SET is not tied to N


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(InputError, match=r"there is no 'set-adjacent'; did you mean 'set-adj"):
        build_model("set-adjacent")
    with pytest.raises(InputError, match="there is no 'qqq'; expected one of set-2, set, set-none"):
        build_model("qqq")


def test_an_unknown_setting_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match=r"width: not a setting of preset 'egnn', .*hidden"):
        build_model("egnn", width=3)
    with pytest.raises(InputError, match=r"hidden: not a setting .*: none"):
        build_model("last-frame", hidden=3)


@pytest.mark.parametrize("preset", ["lstm", "set-adjacency"])
def test_presets_tied_to_n_ask_for_it(preset):
    with pytest.raises(InputError, match=f"nodes: preset '{preset}' is tied .* pass nodes=N"):
        build_model(preset)


def test_like_takes_n_from_the_graph():
    model = build_model("lstm", like=particles(N=7))
    assert isinstance(model, LSTM)
    assert model.config["nodes"] == 7
