"""Our neighbour lists against those of the package vesin: python -m benchmarks.neighbours.

Both find the neighbours of uniformly placed nodes on one thread of the CPU. ``vesin`` is its list
of pairs alone; ``as lists`` also converts the pairs to what models read: a row of neighbours for
each node, the nearest first. vesin has no search for the k nearest, so its radius is widened as
ours is. The last row is a batch of small graphs, which vesin takes one by one. Times are
processor times, medians over interleaved runs.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from spacetime_en.neighbours import nearest_neighbours, radius_neighbours

SIDE = 1.0  # of the cube that holds one node, on average
RADIUS, NEAREST = 2.0, 16  # (34 neighbours on average)


def pairs(
    x: NDArray[np.float64], radius: float, box: NDArray[np.float64] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Nodes i, their neighbours j and the distances, by vesin; (E,) each, sorted by i."""
    from vesin import NeighborList

    search = NeighborList(cutoff=radius, full_list=True, sorted=True, n_threads=1)
    cell = np.zeros((3, 3)) if box is None else np.diag(box)
    i, j, distance = search.compute(x, cell, periodic=box is not None, quantities="ijd")
    return i.astype(np.int64), j.astype(np.int64), distance


def as_lists(
    i: NDArray[np.int64], j: NDArray[np.int64], distance: NDArray[np.float64], nodes: int, most: int
) -> NDArray[np.int64]:
    """Rows of neighbours, the nearest first, (N, K); -1 fills unused places."""
    counts = np.bincount(i, minlength=nodes)
    place = np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = (nodes, int(counts.max()))
    near, far = np.full(shape, -1), np.full(shape, np.inf)
    near[i, place], far[i, place] = j, distance
    order = np.lexsort((near, far))[:, :most]
    return np.take_along_axis(near, order, axis=1)


def by_vesin(
    x: NDArray[np.float64], radius: float | None, k: int | None, box: NDArray[np.float64] | None
) -> NDArray[np.int64]:
    """The same lists as ours, from vesin's pairs."""
    if radius is not None:
        return as_lists(*pairs(x, radius, box), len(x), len(x))
    assert k is not None
    reach = np.ptp(x, axis=0).max() / len(x) ** (1 / 3) * k ** (1 / 3)
    while True:
        found = pairs(x, reach, box)
        if np.bincount(found[0], minlength=len(x)).min() >= k:
            return as_lists(*found, len(x), k)
        reach *= 1.5


def side_by_side(repeats: int, *functions: Callable[[], object]) -> list[float]:
    """The processor time of each function, seconds."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats + 1):  # the first run warms up
        for function, seconds in zip(functions, times, strict=True):
            start = time.process_time()
            function()
            seconds.append(time.process_time() - start)
    return [statistics.median(seconds[1:]) for seconds in times]


def compare(name: str, nodes: int, radius: float | None, periodic: bool, repeats: int) -> None:
    """Print a row for one cloud, searched by radius or, without one, for the nearest."""
    edge = SIDE * nodes ** (1 / 3)
    x = np.random.default_rng(0).uniform(0, edge, (nodes, 3))
    box = np.full(3, edge) if periodic else None
    points, cell = torch.from_numpy(x), None if box is None else torch.from_numpy(box)
    k = NEAREST if radius is None else None
    reach = radius or SIDE * NEAREST ** (1 / 3)

    def ours() -> torch.Tensor:
        if radius is None:
            return nearest_neighbours(points, NEAREST, box=cell)
        return radius_neighbours(points, radius, box=cell)

    def theirs() -> NDArray[np.int64]:
        return by_vesin(x, radius, k, box)

    if not np.array_equal(ours().numpy(), theirs()):
        print(f"{nodes:>9,} {name:12} the lists differ")
    show(f"{nodes:>9,} {name:12}", repeats, ours, lambda: pairs(x, reach, box), theirs)


def show(name: str, repeats: int, *functions: Callable[[], object]) -> None:
    """Print a row: the three times, and their ratios."""
    a, b, c = side_by_side(repeats, *functions)
    print(f"{name} {a:8.4f} s {b:8.4f} s {c:8.4f} s {a / b:10.2f} {a / c:14.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("nodes, search           ours      vesin     as lists  ours / vesin  ours / as lists")
    for nodes in given.nodes:
        compare("radius", nodes, RADIUS, False, given.repeats)
        compare("radius, box", nodes, RADIUS, True, given.repeats)
        compare("nearest", nodes, None, False, given.repeats)
        compare("nearest, box", nodes, None, True, given.repeats)
    batch = np.random.default_rng(0).uniform(0, SIDE * 20 ** (1 / 3), (1_000, 20, 3))
    together = torch.from_numpy(batch)
    show(
        " 1,000 graphs of 20   ",
        given.repeats,
        lambda: radius_neighbours(together, RADIUS),
        lambda: [pairs(x, RADIUS, None) for x in batch],
        lambda: [by_vesin(x, RADIUS, None, None) for x in batch],
    )


if __name__ == "__main__":
    main()
