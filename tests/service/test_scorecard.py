"""The metrics of a session, against sums over all that was ever added."""

from __future__ import annotations

import math

import numpy as np
import pytest

from okl_core.errors import DivergedError, StateFormatError
from okl_core.losses import Hinge, Logistic, Squared
from okl_core.types import F64, REALS, BlockInfo, Forecast
from service.session.scorecard import WINDOW, Issued, Judge, Scorecard, Tally, mistakes
from service.session.truths import Truths

SIZES = (0, 1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 37)


def filled(n: int) -> tuple[Scorecard, np.ndarray, np.ndarray]:
    numbers = np.random.default_rng(n)
    losses, errors = numbers.uniform(0, 3, n), (numbers.uniform(size=n) < 0.3).astype(float)
    card = Scorecard()
    for loss, error in zip(losses.tolist(), errors.tolist(), strict=True):
        card.add(loss, error)
    return card, losses, errors


@pytest.mark.parametrize("n", SIZES[1:])
def test_totals_and_window(n: int) -> None:
    card, losses, errors = filled(n)
    told = card.tally()
    assert (told.rounds, told.window) == (n, min(n, WINDOW))
    assert told.loss == pytest.approx(losses.sum())
    assert told.mean_loss == pytest.approx(losses.mean())
    assert told.window_loss == pytest.approx(losses[-WINDOW:].mean())
    assert told.error == errors.sum()
    assert told.mean_error == pytest.approx(errors.mean())
    assert told.window_error == pytest.approx(errors[-WINDOW:].mean())


def test_nothing_yet() -> None:
    assert Scorecard().tally() == Tally(0, 0.0, None, 0.0, None, 0, None, None)


@pytest.mark.parametrize("n", SIZES)
def test_packed_and_continued(n: int) -> None:
    """A card that was packed in between tells the same for ever after, and so does a copy; the first stays as it is."""
    card, _, _ = filled(n)
    before = card.tally()
    others = [Scorecard.unpack(card.pack()), card.copy()]
    for i in range(WINDOW + 10):
        for one in others:
            one.add(0.1 * i, float(i % 2))
    assert card.tally() == before
    for i in range(WINDOW + 10):
        card.add(0.1 * i, float(i % 2))
    assert [one.tally() for one in others] == [card.tally()] * 2


def test_many_at_once_is_one_by_one() -> None:
    card, losses, errors = filled(700)
    at_once = Scorecard()
    at_once.run(losses, errors, None)
    assert at_once.tally() == card.tally()


@pytest.mark.parametrize(
    "arrays",
    [{}, {"totals": np.zeros(3)}, {"totals": np.zeros(1), "window": np.zeros((3, 0))}]
    + [{"totals": np.zeros(3), "window": np.zeros(shape)} for shape in ((5,), (1, 4), (4, 4), (3, WINDOW + 1))],
)
def test_other_arrays_are_refused(arrays: dict[str, np.ndarray]) -> None:
    with pytest.raises(StateFormatError):
        Scorecard.unpack(arrays)


SIGNS = Truths("binary", None, None, REALS)
NUMBERS = Truths("real", None, (0.0, 10.0), (-1.0, 1.0))
THREE = Truths("class", ("a", "b", "c"), None, (0.0, 2.0))
SHARES = [(0.2, 0.5, 0.3), (0.6, 0.3, 0.1), (0.1, 0.1, 0.8)]
SQUARED, HINGE = Squared(), Hinge()


def block_of(values: F64, probabilities: F64 | None = None) -> BlockInfo:
    return BlockInfo(len(values), values, np.zeros(len(values)), probabilities, b"")


def test_a_round_is_judged_as_it_was_issued() -> None:
    judge = Judge(SQUARED, NUMBERS, SQUARED.probability)
    loss, error = judge.round(Issued(0.5), -0.25)
    assert loss == SQUARED.value(0.5, -0.25)
    assert error == pytest.approx(((0.5 - -0.25) * 5.0) ** 2)
    assert Judge(HINGE, SIGNS, HINGE.probability).round(Issued(0.0), -1.0) == (1.0, 1.0)
    assert Judge(HINGE, SIGNS, HINGE.probability).round(Issued(0.5), 1.0) == (0.5, 0.0)
    issued = Issued.of(Forecast(0.5, None, SHARES[0]), 2.0)
    assert issued == (0.3, 1, 0.5)
    assert Judge(Logistic(), THREE, Logistic().probability).round(issued, 2.0) == (pytest.approx(-math.log(0.3)), 1.0)


@pytest.mark.parametrize("truths", [SIGNS, NUMBERS], ids=["signs", "numbers"])
def test_a_block_is_judged_as_its_rounds(truths: Truths) -> None:
    rng = np.random.default_rng(1)
    values, y = rng.normal(size=20), np.where(rng.random(20) < 0.5, -1.0, 1.0)
    loss = SQUARED if truths is NUMBERS else HINGE
    judge = Judge(loss, truths, loss.probability)
    expected = [judge.round(Issued(value), truth) for value, truth in zip(values.tolist(), y.tolist(), strict=True)]
    found = judge.block(block_of(values), y)
    np.testing.assert_allclose(np.transpose(found), expected, rtol=1e-12)


def test_a_block_of_classes_is_judged_as_its_rounds() -> None:
    Q, y = np.array(SHARES), np.array([2.0, 0.0, 2.0])
    judge = Judge(Logistic(), THREE, Logistic().probability)
    forecasts = [Forecast(max(shares), None, shares) for shares in SHARES]
    expected = [judge.round(Issued.of(forecast, truth), truth) for forecast, truth in zip(forecasts, y, strict=True)]
    losses = -np.log(Q[np.arange(3), y.astype(int)])
    info = block_of(Q.max(axis=1), Q)._replace(losses=losses)
    np.testing.assert_allclose(np.transpose(judge.block(info, y)), expected, rtol=1e-12)
    assert mistakes(THREE, info.values, Q, y).tolist() == [True, False, False]


def test_what_has_no_finite_loss_is_no_round() -> None:
    judge = Judge(SQUARED, Truths("real", None, None, REALS), SQUARED.probability)
    with pytest.raises(DivergedError):
        judge.round(Issued(1e200), 0.0)
    with pytest.raises(DivergedError):
        judge.block(block_of(np.array([0.0, 1e200])), np.zeros(2))
