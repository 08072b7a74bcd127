"""Trivial forecasters and the verdict against them: slow direct computation, late truths, hostile numbers, exact state."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from okl_core.contract.state import pack, unpack
from okl_core.errors import InputError, LabelError, NonFiniteError, StateFormatError
from okl_core.monitoring import Judgement, Plain, PlainClasses, PlainNumbers, Verdict
from okl_core.types import F64, MAX_CLASSES

CLASSES, NUMBERS = st.lists(st.integers(0, 4), max_size=60), st.lists(st.floats(-1e300, 1e300), max_size=40)


def played(kind: type[Plain], truths: list[float]) -> Plain:
    plain = kind()
    plain.run(np.array(truths, dtype=float))
    return plain


@given(CLASSES)
def test_plain_classes_are_counts(truths: list[int]) -> None:
    plain = PlainClasses()
    for t, truth in enumerate(truths):
        before = truths[:t]
        n = [before.count(k) for k in range(max(before, default=-1) + 1)]
        top, last = plain.forecasts()
        assert plain.issued() == (top.value, last.value)
        assert (top.value, last.value) == (n.index(max(n)), before[-1]) if n else (0, 0)
        assert top.probability == ((max(n) + 1) / (t + len(n)) if n else 1.0)
        assert last.probability == (sum(a == b for a, b in zip(before[1:], before, strict=False)) + 1) / (t + 2)
        plain.learn(truth)


def test_a_tie_goes_to_the_lowest_class() -> None:
    plain = played(PlainClasses, [2, 1])
    assert plain.issued() == (1.0, 1.0)
    plain.learn(2)
    assert plain.issued() == (2.0, 2.0)


def test_the_probabilities_are_those_of_classes_that_are_known() -> None:
    top, last = PlainClasses.of(4).forecasts()
    assert (top.probability, last.probability) == (0.25, 0.5)


@given(st.lists(st.floats(-1e6, 1e6), max_size=60))
def test_plain_numbers_are_the_mean_and_the_last(truths: list[float]) -> None:
    issued = PlainNumbers().run(np.array(truths)).values
    for t, (mean, last) in enumerate(issued.tolist()):
        assert mean == pytest.approx(np.mean(truths[:t]) if t else 0.0, abs=1e-6)
        assert last == (truths[t - 1] if t else 0.0)


@given(st.lists(st.sampled_from((1.7e308, -1.7e308)), max_size=30))
def test_the_mean_of_the_largest_numbers_is_finite(truths: list[float]) -> None:
    assert np.isfinite(PlainNumbers().run(np.array(truths)).values).all()


@pytest.mark.parametrize("truth", [-1.0, 0.5, float(MAX_CLASSES), 1e300, math.nan, math.inf])
def test_what_is_no_class_changes_nothing(truth: float) -> None:
    plain = PlainClasses.of(2)
    with pytest.raises(LabelError):
        plain.learn(truth)
    assert plain.counts.tolist() == [0.0, 0.0]
    plain.learn(MAX_CLASSES - 1)
    assert plain.nbytes == 8 * MAX_CLASSES


@pytest.mark.parametrize("truth", [math.nan, math.inf])
def test_what_is_no_number_changes_nothing(truth: float) -> None:
    plain = PlainNumbers()
    with pytest.raises(NonFiniteError):
        plain.learn(truth)
    assert plain == PlainNumbers()


def slow(own: list[float], pairs: F64, truths: list[float]) -> tuple[list[list[float]], list[F64]]:
    """Errors and differences of numbers, as defined, from the 17th round on."""
    squares = (pairs - np.array(truths)[:, None]) ** 2
    errors, differences, c = [], [], np.zeros(2)
    for t, error in enumerate(own):
        if t >= 16:
            errors.append([error, *squares[t].tolist()])
            differences.append(np.minimum(squares[t] / (9.0 * c), 1.0) - np.minimum(error / (9.0 * c), 1.0))
        c += (squares[t] - c) / min(t + 1, 128)
    return errors, differences


def test_a_verdict_on_numbers_is_computed_as_defined() -> None:
    rng = np.random.default_rng(3)
    truths = np.cumsum(rng.standard_normal(400))
    pairs, own = PlainNumbers().run(truths).values, (rng.standard_normal(400) * 2.0) ** 2
    verdict = Verdict(is_of_numbers=True)
    verdict.run(own, pairs, truths)
    errors, differences = slow(own.tolist(), pairs, truths.tolist())
    told, sums = verdict.judgement(), np.sum(errors, axis=0)
    assert [verdict.against_first.total, verdict.against_second.total] == pytest.approx(np.sum(differences, axis=0))
    assert told.rounds == 384
    assert told.rival == "last-label"
    assert told.gain == pytest.approx(1.0 - math.sqrt(sums[0] / sums[2]))
    assert (told.low, told.high) == verdict.against_second.band(0.975)
    assert told.state == "worse"


@pytest.mark.parametrize(("own", "state"), [(0.0, "better"), (1.0, "worse"), (0.4, "undecided")])
def test_verdicts_on_classes(own: float, state: str) -> None:
    rng = np.random.default_rng(4)
    truths = (rng.random(2000) < 0.4).astype(float)
    verdict = Verdict(is_of_numbers=False)
    verdict.run((rng.random(2000) < own).astype(float), PlainClasses.of(2).run(truths).values, truths)
    told = verdict.judgement()
    assert (told.rival, told.state) == ("majority", state)
    assert told.gain is not None
    assert told.gain == pytest.approx(1.0 - own / 0.4, abs=0.15)
    assert told.rounds == 2000


def test_one_error_less_makes_the_rival() -> None:
    verdict = Verdict(is_of_numbers=False)
    verdict.add(0.0, (1.0, 0.0), 0.0)
    assert verdict.judgement().rival == "last-label"
    verdict.add(0.0, (0.0, 1.0), 0.0)
    # The first, on a tie.
    assert verdict.judgement().rival == "majority"


def test_the_rival_is_the_better_of_the_two() -> None:
    truths = np.repeat([0.0, 1.0] * 20, 10)
    verdict = Verdict(is_of_numbers=False)
    verdict.run(np.zeros(400), PlainClasses.of(2).run(truths).values, truths)
    assert verdict.judgement()[1:4] == ("last-label", 1.0, "better")


def test_what_was_issued_counts_not_what_is_said_now() -> None:
    plain, verdict = PlainClasses.of(2), Verdict(is_of_numbers=False)
    issued = plain.issued()
    for _ in range(50):
        plain.learn(1)
        verdict.add(0.0, issued, 1)
    assert (verdict.first, verdict.second) == (50.0, 50.0)


def test_an_opposite_gain_leaves_it_undecided() -> None:
    """Small errors mostly, and now and then a huge one, which is cut."""
    rng = np.random.default_rng(6)
    truths = rng.standard_normal(2000)
    own = np.where(np.arange(2000) % 50 == 49, 1e6, 0.0)
    verdict = Verdict(is_of_numbers=True)
    verdict.run(own, PlainNumbers().run(truths).values, truths)
    told = verdict.judgement()
    assert told.low > 0.0
    assert told.gain is not None
    assert told.gain < 0.0
    assert told.state == "undecided"


@pytest.mark.parametrize("is_of_numbers", [True, False])
def test_nothing_is_told_of_nothing(is_of_numbers: bool) -> None:
    assert Verdict(is_of_numbers).judgement() == Judgement(
        0, "mean" if is_of_numbers else "majority", None, "undecided", -1.0, 1.0
    )


def test_a_session_no_better_is_called_so_seldom() -> None:
    """Coins against coins: at any of 400 rounds, at most 5 % of the streams."""
    rng, wrong, N = np.random.default_rng(7), 0, 60
    for _ in range(N):
        truths = (rng.random(400) < 0.5).astype(float)
        verdict, issued = Verdict(is_of_numbers=False), PlainClasses.of(2).run(truths).values
        is_wrong = False
        for error, pair, truth in zip((rng.random(400) < 0.5).tolist(), issued.tolist(), truths.tolist(), strict=True):
            verdict.add(error, pair, truth)
            is_wrong = is_wrong or verdict.judgement().state != "undecided"
        wrong += is_wrong
    assert wrong <= binom.ppf(0.999, N, 0.05)


@given(NUMBERS, st.data())
def test_numbers_of_any_size_leave_a_state_that_continues_bit_for_bit(truths: list[float], data: st.DataObject) -> None:
    errors = st.floats(0.0, allow_nan=False)
    own = data.draw(st.lists(errors, min_size=len(truths), max_size=len(truths)))
    middle = data.draw(st.integers(0, len(truths)))
    plain, verdict = PlainNumbers(), Verdict(is_of_numbers=True)
    others: list[tuple[PlainNumbers, Verdict]] = []
    for t, (truth, error) in enumerate(zip(truths, own, strict=True)):
        if t == middle:
            others = [(unpack(PlainNumbers, pack(plain)), unpack(Verdict, pack(verdict)))]
        for one, other in [(plain, verdict), *others]:
            other.add(error, one.issued(), truth)
            one.learn(truth)
    assert all(one == plain and other == verdict for one, other in others)
    told = verdict.judgement()
    assert -1.0 <= told.low <= told.high <= 1.0
    assert told.gain is None or math.isfinite(told.gain)


@given(CLASSES, st.integers(0, 60))
def test_classes_continue_bit_for_bit(truths: list[int], middle: int) -> None:
    plain = played(PlainClasses, list(truths[:middle]))
    again = unpack(PlainClasses, pack(plain))
    rest = np.array(truths[middle:], dtype=float)
    assert plain.run(rest).values.tolist() == again.run(rest).values.tolist()
    assert {name: array.tolist() for name, array in pack(plain).items()} == {
        name: array.tolist() for name, array in pack(again).items()
    }


@pytest.mark.parametrize(
    ("error", "issued", "truth"),
    [(math.nan, (0.0, 0.0), 0.0), (0.0, (math.inf, 0.0), 0.0), (0.0, (0.0, math.nan), 0.0), (-1.0, (0.0, 0.0), 0.0)],
)
@pytest.mark.parametrize("is_of_numbers", [True, False])
def test_hostile_rounds_change_nothing(
    is_of_numbers: bool, error: float, issued: tuple[float, float], truth: float
) -> None:
    verdict = Verdict(is_of_numbers)
    with pytest.raises(InputError):
        verdict.add(error, issued, truth)
    assert verdict == Verdict(is_of_numbers)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (PlainClasses, "counts", np.array([1.0, 0.5])),
        (PlainClasses, "counts", np.array([9.0, 9.0])),
        (PlainClasses, "counts", np.zeros(1001)),
        (PlainClasses, "top", np.array(0.0)),
        (PlainClasses, "last", np.array(7.0)),
        (PlainClasses, "repeats", np.array(7.0)),
        (PlainNumbers, "mean", np.array(np.nan)),
        (PlainNumbers, "rounds", np.array(-1.0)),
    ],
)
def test_arrays_that_are_no_state_are_refused(kind: type[Plain], name: str, value: F64) -> None:
    arrays = pack(played(kind, [1.0, 1.0, 0.0]))
    with pytest.raises(StateFormatError):
        unpack(kind, arrays | {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("own", 3.0), ("first", -1.0), ("scale_of_first", np.nan), ("seen", 3.0), ("against_first.count", 1.0)],
)
def test_a_verdict_that_cannot_be_is_refused(name: str, value: float) -> None:
    verdict = Verdict(is_of_numbers=False)
    verdict.run(np.zeros(2), np.zeros((2, 2)), np.ones(2))
    with pytest.raises(StateFormatError):
        unpack(Verdict, pack(verdict) | {name: np.array(value)})
