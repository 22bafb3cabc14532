"""The demonstration behind ``spacetime demo``."""

from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from spacetime_en import geometry
from spacetime_en.data import simulate
from spacetime_en.graph import SpacetimeGraph
from spacetime_en.nn.presets import build_model
from spacetime_en.report.plots import plot_equivariance
from spacetime_en.testing import TOLERANCE, assert_equivariant, equivariance_errors


def charged_particles(seed: int) -> SpacetimeGraph:
    """Five simulated charged particles: ten frames, 0.3 time units apart."""
    t = simulate("charged", num=1, save=range(0, 3000, 300), seed=seed)
    return SpacetimeGraph.from_particles(t.x, t.v, t.charge, times=t.times).to(torch.float32)


def run_demo(out: Path, seed: int) -> None:
    """Build SET, forecast, measure its symmetries beside those of two other models, draw."""
    console = Console()
    torch.manual_seed(seed)
    graph = charged_particles(seed)
    model = build_model("set").eval()
    count = sum(p.numel() for p in model.parameters())
    console.print(f"The paper's SET, {count:,} parameters, untrained, forecasts {graph}:")
    forecast = model(graph)
    for node, (x, v) in enumerate(zip(forecast.x[0].tolist(), forecast.v[0].tolist(), strict=True)):
        place = ", ".join(f"{c:6.2f}" for c in x)
        console.print(f"  node {node}: x = ({place}),  |v| = {sum(c * c for c in v) ** 0.5:.1e}")
    console.print("(Untrained, it forecasts about the mean of the window, nearly at rest.)")

    table = Table("relative error", "translation", "rotation", "permutation")
    for preset in ("set", "set-nonequivariant", "lstm"):
        other = model if preset == "set" else build_model(preset, nodes=5).eval()
        table.add_row(preset, *(f"{e:.1e}" for e in equivariance_errors(other, graph)))
    console.print(table)
    assert_equivariant(model, graph)
    tolerance = TOLERANCE[graph.x.dtype]
    console.print(f"assert_equivariant(model, graph) passed (tolerance {tolerance:.0e}, float32).")

    q = geometry.random_rotation(3, torch.Generator().manual_seed(seed))
    path = plot_equivariance(model, graph, q, out / "equivariance.png")
    console.print(f"Picture: {path}")
    console.print(
        "Next: `spacetime models` lists all models, `spacetime data info charged` the data;\n"
        "docs/your-data.md shows how to bring your own. (`make` puts commands into .venv/bin.)"
    )
