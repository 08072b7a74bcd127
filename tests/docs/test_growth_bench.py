"""`bench.growth`: its exponents are those of what is known."""

from __future__ import annotations

import numpy as np
import pytest

from bench.growth import Grown, fitted, grow, rows, verdict
from service.demo_data import magic


def test_the_exponent_of_a_power_is_its_own() -> None:
    ts = [100.0, 200.0, 400.0, 900.0]
    assert fitted(ts, [3.0 * t**1.7 for t in ts]) == pytest.approx((1.7, 0.0), abs=1e-7)
    slope, error = fitted(ts, [1.0, 1.1, 0.9, 1.0])
    assert abs(slope) < 2.0 * error


def test_what_a_learner_keeps_of_all_rounds_grows_as_their_square_and_a_budget_does_not() -> None:
    # The factor's triangle has t^2 / 2 numbers, the points beside it 12 t: so early still between the two.
    assert 1.2 < grow("kernel-ridge-magic-4000", 700, turns=1).bytes < 2.1
    assert grow("fogd-magic", 700, turns=1).bytes == pytest.approx(0.0, abs=1e-9)


def test_a_bar_holds_only_where_the_error_is_small() -> None:
    told = [verdict(Grown(0.01, error, 0.0, 1.0, 1.0), 0.02) for error in (0.004, 0.006)]
    assert told == ["holds", "open"]
    assert verdict(Grown(0.05, 0.01, 0.0, 1.0, 1.0), 0.02) == "crossed"


def test_no_row_comes_twice() -> None:
    X, y = magic()
    found, _ = rows(0, 2 * len(y), X, y)
    assert len(np.unique(found, axis=0)) == 2 * len(y)
    assert np.abs(found[: len(y)] - X).max() < 0.1
