"""The drift of energy for every system and scheme: python benchmarks/drift.py."""

import numpy as np

from spacetime_en.data import SYSTEMS, simulate
from spacetime_en.data.simulation.drift import drift
from spacetime_en.data.simulation.integrator import SCHEMES


def main() -> None:
    print("relative energy drift over 5 time units, N = 5, 200 trajectories: median (mean)")
    for name, system in SYSTEMS.items():
        row = []
        for scheme in SCHEMES:
            energy = drift(system, simulate(name, 200, save=[0, 5000], scheme=scheme))["energy"]
            row.append(f"{scheme} {np.median(energy):.1e} ({energy.mean():.1e})")
        print(f"{name:8}", "  ".join(row))


if __name__ == "__main__":
    main()
