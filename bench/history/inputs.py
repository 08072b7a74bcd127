"""Inputs that name themselves. Each round of a run has a *serial*; its input and truth follow from that alone.

The first coordinate is the serial itself, mixed, on a grid of 2^-21; so are the others. A learner that keeps its inputs in
units that are powers of two therefore keeps them exactly, and its state says which rounds it learned, in which order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from okl_core.kernels.points import Points

BITS = 21
SERIALS = 1 << BITS
DIM = 3

_MIX = 0x9E3775  # odd: multiplying by it modulo 2^21 permutes the serials
_UNMIX = pow(_MIX, -1, SERIALS)
_OTHERS = (0x1B873593, 0x85EBCA6B)

LEARNERS: Mapping[str, Mapping[str, object]] = {
    "kernel-ogd": {"kernel": {"kind": "gaussian", "sigma": 0.5}, "loss": "squared"},
    "kernel-ridge": {"kernel": {"kind": "gaussian", "sigma": 0.5}, "clip": 1.0},
}
"""Learners that store every input, in order, with the array of their state where they do."""

_STORED_IN = ("points", "space.J")


def input_of(serial: int) -> list[float]:
    first = serial * _MIX % SERIALS
    others = ((serial * factor ^ (serial >> 7) * _MIX) % SERIALS for factor in _OTHERS)
    return [first / SERIALS, *(other / SERIALS for other in others)]


def truth_of(serial: int) -> float:
    """In [-1, 1], smooth in the input but for a third of it, so that learning shows."""
    x = input_of(serial)
    noise = (serial * 0xC2B2AE35 % 1000) / 1000 - 0.5
    return round(0.6 * float(np.sin(6.0 * x[0]) * np.cos(3.0 * x[1])) + 0.4 * noise, 6)


def serials_of(X: NDArray[np.float64]) -> list[int]:
    """The serials of inputs, shape (n, d); -1 for one that no round has."""
    firsts = np.rint(X[:, 0] * SERIALS).astype(int).tolist()
    found = [first * _UNMIX % SERIALS for first in firsts]
    return [serial if _is_near(row, serial) else -1 for row, serial in zip(X, found, strict=True)]


def _is_near(row: NDArray[np.float64], serial: int) -> bool:
    return len(row) == DIM and bool(np.abs(row - input_of(serial)).max() < 0.25 / SERIALS)


def learned(state: Mapping[str, NDArray[np.float64]]) -> Sequence[int]:
    """The serials that a learner has learned, in order, by its own state."""
    for name in _STORED_IN:
        arrays = {key.removeprefix(f"{name}."): array for key, array in state.items() if key.startswith(f"{name}.")}
        if arrays:
            return serials_of(Points.unpack(arrays).coordinates())
    raise ValueError(f"no stored inputs among {sorted(state)}")
