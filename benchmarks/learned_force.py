"""The force law learned by a set-flow, next to the true one of the charged particles.

``python benchmarks/learned_force.py RUN --out force.png``
"""

import argparse
from pathlib import Path

import torch

from spacetime_en.data.simulation.systems import SYSTEMS
from spacetime_en.nn.models.flow import Flow
from spacetime_en.report.plots import new_figure
from spacetime_en.runs.run import Run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="folder of the run, or pretrained:NAME")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    model = Run.open(given.run).model()
    assert isinstance(model, Flow), "only a set-flow has a force law"
    r = torch.logspace(-1.7, 1, 200)
    most = SYSTEMS["charged"].max_force
    figure = new_figure(6, 4)
    axes = figure.add_subplot()
    axes.axvspan(float(r[0]), most**-0.5, color="0.92")
    axes.loglog(r, 1 / r.square(), color="0.5", lw=4, label="true, before it is clipped")
    for charge, name, style in ((1.0, "like charges", "C0"), (-1.0, "opposite charges", "C3--")):
        s = torch.full((200, 1), charge)
        with torch.no_grad():
            learned = charge * model.force.strength(r[:, None], s)[:, 0]
        axes.loglog(r, learned.clamp(min=1e-4), style, label=f"learned, {name}")
        for at in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0):
            k = int((r - at).abs().argmin())
            share = float(learned[k] * r[k].square())
            print(f"{name}: at r = {float(r[k]):.3f} the learned force is {share:.3f} of the true")
    axes.set(xlabel="distance", ylabel="force", ylim=(5e-3, 3e3), xlim=(r[0], r[-1]))
    axes.text(0.021, 7e-3, "clipped in the data", color="0.4", fontsize=8)
    axes.legend(frameon=False)
    figure.savefig(given.out, dpi=150)
    print(given.out)


if __name__ == "__main__":
    main()
