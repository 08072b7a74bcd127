"""The bench of the theorems: none is broken, and one that is false is told."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import find, settings

from bench.sides import ROUNDS, THEOREMS, Sides, Stream, newton
from bench.theorems import ROUNDING, attack, streams


@pytest.mark.parametrize("name", THEOREMS)
def test_no_theorem_is_broken(name: str) -> None:
    assert min(attack(THEOREMS[name], 24)) >= -ROUNDING


def test_a_false_theorem_is_broken() -> None:
    def without_its_norm(stream: Stream) -> Sides:
        sides = newton(stream)
        return sides._replace(right=0.7 * sides.right)

    assert min(attack(without_its_norm, 24)) < -0.1


@pytest.mark.parametrize(
    "is_one",
    [
        lambda stream: len(np.unique(stream.X, axis=0)) == ROUNDS,
        lambda stream: len(np.unique(stream.X, axis=0)) == 1,
        lambda stream: 0.0 < np.ptp(stream.X, axis=0).max() < 1e-3,
        lambda stream: np.isnan(stream.y).all(),
        lambda stream: set(np.abs(stream.y)) == {1.0} and abs(stream.y.sum()) < ROUNDS,
        lambda stream: 0.0 < np.abs(stream.y).min() < 1.0,
    ],
    ids=["all apart", "all the same", "nearly the same", "an adversary", "labels", "numbers"],
)
def test_streams_are_of_every_kind(is_one: Callable[[Stream], bool]) -> None:
    assert is_one(find(streams(), is_one, settings=settings(max_examples=5000, database=None, deadline=None)))
