"""A duel against the sums themselves, and how often it is wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from okl_core.contract.state import pack, unpack
from okl_core.errors import InputError, StateFormatError
from okl_core.monitoring.bands import boundary
from okl_core.monitoring.duel import Duel
from okl_core.monitoring.verdict import state_of

ERRORS = st.one_of(st.floats(0.0, 1e6), st.just(math.inf), st.just(0.0))


@given(st.lists(st.tuples(ERRORS, ERRORS), max_size=60))
def test_numbers_are_cut_at_nine_times_the_usual_error_of_the_rival(errors: list[tuple[float, float]]) -> None:
    duel = Duel(is_of_numbers=True)
    for own, rival in errors:
        duel.add(own, rival)
    scale, differences, counted = 0.0, [], []
    for i, pair in enumerate(errors):
        own, rival = (min(one, 1e290) for one in pair)
        if i >= 16:
            cut = [min(one / (9.0 * scale), 1.0) if scale else float(one > 0.0) for one in (own, rival)]
            differences.append(cut[1] - cut[0])
            counted.append((own, rival))
        scale += (rival - scale) / min(i + 1, 128)
    told = duel.outcome()
    assert told.rounds == len(differences)
    if differences:
        means = [0.0, *(np.cumsum(differences) / np.arange(1, len(differences) + 1))[:-1]]
        spread = sum((d - mean) ** 2 for d, mean in zip(differences, means, strict=True))
        width = boundary(spread, 0.025, 2.0) / len(differences)
        mean = math.fsum(differences) / len(differences)
        assert told.low == pytest.approx(max(mean - width, -1.0), abs=1e-9)
        assert told.high == pytest.approx(min(mean + width, 1.0), abs=1e-9)
        assert told.own == pytest.approx(math.fsum(one for one, _ in counted) / len(counted))
    assert unpack(Duel, pack(duel)) == duel


def test_the_band_has_95_percent() -> None:
    duel = Duel(is_of_numbers=False)
    for _ in range(400):
        duel.add(0.0, 1.0)
    # The first difference is guessed as 0, the others as 1; the band ends at 1.
    assert duel.outcome().low == pytest.approx(1.0 - boundary(1.0, 0.025, 2.0) / 400.0)


@pytest.mark.parametrize(
    ("low", "high", "own", "rival", "state"),
    [
        (0.1, 0.3, 1.0, 2.0, "better"),
        (0.1, 0.3, 2.0, 1.0, "undecided"),
        (-0.3, -0.1, 2.0, 1.0, "worse"),
        (-0.3, -0.1, 1.0, 2.0, "undecided"),
        (-0.3, 0.1, 2.0, 1.0, "undecided"),
        (0.0, 0.0, 2.0, 1.0, "undecided"),
    ],
)
def test_nothing_is_decided_against_the_uncut_errors(
    low: float, high: float, own: float, rival: float, state: str
) -> None:
    assert state_of(low, high, own, rival) == state


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_equals_are_hardly_ever_told_apart(seed: int) -> None:
    """After 1,000 rounds; the chance is 5 % at all times together, and at one time far less."""
    rng, duel = np.random.default_rng(seed), Duel(is_of_numbers=False)
    for own, rival in (rng.random((1_000, 2)) < 0.3).astype(float).tolist():
        duel.add(own, rival)
    assert duel.outcome().state == "undecided"


def test_the_better_one_is_found() -> None:
    rng, duel = np.random.default_rng(1), Duel(is_of_numbers=True)
    worse = Duel(is_of_numbers=True)
    for z, w in rng.normal(size=(2_000, 2)).tolist():
        duel.add(0.5 * z * z, w * w)
        worse.add(w * w, 0.5 * z * z)
    assert (duel.outcome().state, worse.outcome().state) == ("better", "worse")


@pytest.mark.parametrize("pair", [(math.nan, 0.0), (0.0, math.nan), (-1.0, 0.0), (0.0, 2.0)])
def test_what_is_no_error_is_refused(pair: tuple[float, float]) -> None:
    duel = Duel(is_of_numbers=False)
    with pytest.raises(InputError):
        duel.add(*pair)
    assert duel == Duel(is_of_numbers=False)
    with pytest.raises(StateFormatError):
        Duel(is_of_numbers=False, seen=3)
