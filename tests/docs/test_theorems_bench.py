"""The bench of the theorems: none is broken, and one that is false is told."""

from __future__ import annotations

import pytest

from bench.theorems import ROUNDING, THEOREMS, Sides, Stream, attack, drawn, newton


@pytest.mark.parametrize("name", THEOREMS)
def test_no_theorem_is_broken(name: str) -> None:
    assert min(attack(THEOREMS[name], 24)) >= -ROUNDING


def test_a_false_theorem_is_broken() -> None:
    def without_its_norm(stream: Stream) -> Sides:
        sides = newton(stream)
        return sides._replace(right=0.7 * sides.right)

    assert min(attack(without_its_norm, 24)) < -0.1


def test_streams_are_of_every_kind() -> None:
    kinds = [drawn(seed) for seed in range(12)]
    assert len({stream.X.tobytes() + stream.y.tobytes() for stream in kinds}) == 12
