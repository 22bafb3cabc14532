"""Slots: places in the arrays of a recording, occupied by one node after another.

A thousand people who pass through a scene, thirty at a time, need thirty slots, not a thousand.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError

if TYPE_CHECKING:
    from spacetime_en.data.trajectories import LazyArray

NOBODY = -1  # the id in an empty slot


def assign_slots(first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """Assign every node of a recording a slot from its first frame to its last.

    Nodes are processed by first frame, then by index, and take the lowest free slot; so there are
    as many slots as nodes at the busiest time.

    Args:
        first, last: frame in which each node is first and last observed, (P,).
    Returns: the slot of each node, (P,).
    """
    slots = np.empty(len(first), dtype=np.int64)
    taken: list[tuple[int, int]] = []  # (last frame, slot), a heap: first free on top
    free: list[int] = []
    for node in np.argsort(first, kind="stable").tolist():
        while taken and taken[0][0] < first[node]:
            heapq.heappush(free, heapq.heappop(taken)[1])
        slot = heapq.heappop(free) if free else len(taken)
        heapq.heappush(taken, (int(last[node]), slot))
        slots[node] = slot
    return slots


def check_ids(ids: LazyArray, observed: LazyArray) -> None:
    """Reject observations without a node, and nodes that change slots; reads run by run.

    Args:
        ids: the node in each slot in each frame, (R, T, N); :data:`NOBODY`: none.
        observed: (R, T, N).
    """
    for run in range(len(ids)):
        here, seen = np.asarray(ids[run]), np.asarray(observed[run])
        nobody = np.argwhere(seen & (here < 0))
        if len(nobody):
            frame, slot = nobody[0]
            raise InputError(
                f"ids: expected a node's number of 0 or more where it was observed, found "
                f"{here[frame, slot]} at run {run}, frame {frame}, slot {slot}."
            )
        frame, slot = np.nonzero(here >= 0)
        nodes, first = np.unique(here[frame, slot], return_index=True)
        own = slot[first][np.searchsorted(nodes, here[frame, slot])]
        moved = np.flatnonzero(own != slot)
        if len(moved):
            node = here[frame[moved[0]], slot[moved[0]]]
            raise InputError(f"ids: node {node} of run {run} is in several slots; give it one.")
