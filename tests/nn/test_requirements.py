"""Requirements of models on graphs: each check accepts valid graphs and names the invalid."""

import pytest
import torch

from spacetime_en import InputError
from spacetime_en.nn import requirements
from tests.helpers import masked, padded, particles

GRAPH = particles()  # B = 3, L = 3, N = 4, n = 3, d = 1, e = 1
PAIRS = torch.tensor([[1], [0], [3], [2]])


@pytest.mark.parametrize(
    ("check", "arguments", "right", "wrong"),
    [
        ("check_widths", (), (GRAPH, 1, 1), (GRAPH, 2, 1)),
        ("check_widths", (), (GRAPH, 1, 1), (GRAPH, 1, 0)),
        ("check_dims", (3,), (GRAPH,), (particles(n=2),)),
        ("check_nodes", (4,), (GRAPH,), (particles(N=5),)),
        ("check_nodes", (5,), (particles(N=5),), (masked(),)),
        ("check_frames", (3,), (GRAPH,), (particles(L=4),)),
        ("check_frames", (5,), (particles(L=5),), (masked(),)),
        ("check_frames", (5,), (particles(L=5),), (padded(),)),
        ("check_length", (5,), (masked(),), (masked(L=4),)),
        ("check_last_frame", (), (masked()[:2],), (masked(),)),
        ("check_no_padding", ("a mean",), (masked()[:1],), (padded(),)),
        ("check_whole_frames", ("all",), (padded()[:1],), (masked()[:1],)),
        ("check_target_times", (1,), (GRAPH,), (particles(horizon=[[1.0, 2.0]] * 3),)),
        ("check_horizon", (), (GRAPH,), (particles(horizon=torch.tensor(0.0)),)),
        ("check_no_box", ("a centre",), (GRAPH,), (particles(box=torch.ones(3)),)),
    ],
)
def test_a_graph_passes_or_is_refused(check, arguments, right, wrong):
    function = getattr(requirements, check)
    function(*right, *arguments)
    with pytest.raises(InputError):
        function(*wrong, *arguments)


def test_neighbour_lists_are_refused_where_the_graph_must_be_complete_or_static():
    fixed = GRAPH.replace(neighbours=PAIRS, edge_attr=None)
    changing = GRAPH.replace(neighbours=PAIRS.expand(3, 3, 4, 1), edge_attr=None)
    requirements.check_complete(GRAPH, "this")
    requirements.check_static(fixed, "this")
    with pytest.raises(InputError, match="leave neighbours out"):
        requirements.check_complete(fixed, "this")
    with pytest.raises(InputError, match="one list for all frames"):
        requirements.check_static(changing, "this")
