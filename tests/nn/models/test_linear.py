import torch

from spacetime_en import build_model
from tests.helpers import particles


def test_linear_dynamics_starts_at_x_plus_v_and_has_three_numbers():
    graph = particles()
    model = build_model("linear").double()
    torch.testing.assert_close(model(graph).x, graph.x[:, -1:] + graph.v[:, -1:])
    with torch.no_grad():
        model.alpha.fill_(2.0), model.beta.fill_(0.5), model.gamma.fill_(0.1)
    torch.testing.assert_close(model(graph).x, graph.x[:, -1:] + 2 * graph.v[:, -1:])
    torch.testing.assert_close(model(graph).v, 0.5 * graph.v[:, -1:] + 0.1)


def test_a_node_that_is_missing_in_the_last_frame_has_moved_on():
    graph = particles(times=[0.0, 1.0, 3.0])
    seen = torch.ones(3, 3, 4, dtype=torch.bool)
    seen[1, 2, 0] = False
    forecast = build_model("linear").double()(graph.replace(observed=seen))
    expected = graph.x[1, 1, 0] + (2 + 1) * graph.v[1, 1, 0]
    torch.testing.assert_close(forecast.x[1, 0, 0], expected)
