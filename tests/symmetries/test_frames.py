"""Frames rotate with the vectors they are made of."""

import numpy as np

from spacetime_en.geometry import random_rotation
from spacetime_en.symmetries.frames import own_frames, turned

VECTORS = np.random.default_rng(0).standard_normal((50, 4, 3))


def test_frames_are_rotations():
    frames = own_frames(VECTORS)
    assert np.allclose(frames @ np.swapaxes(frames, 1, 2), np.eye(3))
    assert np.allclose(np.linalg.det(frames), 1)


def test_a_turned_window_looks_the_same_in_its_own_frame():
    q = random_rotation(3).numpy()
    there = VECTORS @ q.T
    assert np.allclose(turned(own_frames(VECTORS), VECTORS), turned(own_frames(there), there))


def test_an_axis_stays():
    axis = np.array([0.0, 0.6, 0.8])
    frames = own_frames(VECTORS, axis)
    assert np.allclose(turned(frames, np.broadcast_to(axis, (50, 3))), [1, 0, 0])


def test_vectors_that_are_zero_or_parallel_still_have_a_frame():
    vectors = np.zeros((2, 2, 3))
    vectors[1] = [1.0, 1.0, 0.0]
    assert np.allclose(np.linalg.det(own_frames(vectors)), 1)
