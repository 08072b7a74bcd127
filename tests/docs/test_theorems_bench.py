"""The bench of the theorems: none is broken, and one that is false is told."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import Phase, find, settings

from bench.covered import LATEST, PLAYED, Learned, Scores, learned, missed_at_least, missed_at_most, scores
from bench.sides import ROUNDS, Sides, Stream, newton
from bench.theorems import ATTACKS, ROUNDING, attack, climb, descend, streams
from tests.docs.pages import DOCS


@pytest.mark.parametrize("name", ATTACKS)
def test_no_theorem_is_broken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By few streams and short searches: the bench plays thousands."""
    monkeypatch.setattr("bench.theorems.STEPS", 10)
    assert min(ATTACKS[name](8)) >= -ROUNDING


def test_the_page_has_a_row_of_each() -> None:
    rows = re.findall(
        r"^\| (.+?) \| \d\.\d{4} \| \d\.\d{4} \| holds \|$", (DOCS / "theorems.md").read_text(), re.MULTILINE
    )
    assert rows == list(ATTACKS)


def test_a_false_theorem_is_broken() -> None:
    def without_its_norm(stream: Stream) -> Sides:
        sides = newton(stream)
        return sides._replace(right=0.7 * sides.right)

    assert min(attack(without_its_norm, streams(), descend, 24)) < -0.1


@pytest.mark.parametrize("side", [missed_at_most, missed_at_least])
def test_a_false_theorem_of_scores_is_broken(side: Callable[[Scores], Sides]) -> None:
    def nearly(stream: Scores) -> Sides:
        sides = side(stream)
        return sides._replace(right=0.95 * sides.right)

    assert min(attack(nearly, scores(), climb, 160)) < 0.0


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
    without_shrinking = settings(max_examples=5000, database=None, deadline=None, phases=[Phase.generate])
    assert is_one(find(streams(), is_one, settings=without_shrinking))


@pytest.mark.parametrize(
    "is_one",
    [
        lambda told: told[-1].longest_lag == 0,
        lambda told: told[-1].longest_lag > LATEST,
        lambda told: max(one.excess for one in told) > 30.0,
        lambda told: max(one.excess for one in told) > 60.0,
        lambda told: min(one.excess for one in told) < -20.0,
        lambda told: 1.0 < told[-1].ratio < 4.0,
    ],
    ids=["none is late", "some wait for long", "many misses", "more while they wait", "few misses", "one scale"],
)
def test_scores_are_of_every_kind(is_one: Callable[[list[Learned]], bool]) -> None:
    without_shrinking = settings(max_examples=2000, database=None, deadline=None, phases=[Phase.generate])
    told = learned(find(scores(), lambda one: is_one(learned(one)), settings=without_shrinking))
    assert len(told) == PLAYED
