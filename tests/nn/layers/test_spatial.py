from typing import get_args

import pytest
import torch

from spacetime_en import InputError, build_model
from spacetime_en.nn.layers.egcl import EGNN
from spacetime_en.nn.layers.spatial import STEERABLE, SpatialName, spatial_part
from tests.helpers import SMALL, particles


def test_every_name_has_a_part():
    parts = {name: spatial_part(name, 1, 2, 8, 1, True, False, 1) for name in get_args(SpatialName)}
    assert {name: type(part) for name, part in parts.items()} == {"egcl": EGNN, **STEERABLE}


def test_the_papers_part_is_a_name_as_well():
    """SET(spatial=True), as in files of old models, is SET(spatial="egcl")."""
    graph = particles()
    models = []
    for spatial in (True, "egcl"):
        torch.manual_seed(0)
        models.append(build_model("set", spatial=spatial, **SMALL).double().eval())
    one, other = (model(graph) for model in models)
    assert torch.equal(one.x, other.x)
    with torch.device("meta"):
        assert sum(p.numel() for p in build_model("set", spatial="egcl").parameters()) == 796_058


@pytest.mark.parametrize("spatial", STEERABLE)
def test_in_set_each_block_has_its_own(spatial):
    model = build_model("set", spatial=spatial, **SMALL)
    parts = [block.egnn for block in model.blocks]
    assert [type(part) for part in parts] == [STEERABLE[spatial]] * 2
    assert [len(part.layers) for part in parts] == [2, 2]


def test_what_is_no_part_is_refused():
    with pytest.raises(InputError, match="spatial: expected true or false or 'egcl' or 'tfn'"):
        build_model("set", spatial="gcn")
