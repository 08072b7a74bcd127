"""The metrics of a session, against sums over all that was ever added."""

from __future__ import annotations

import math

import numpy as np
import pytest

from okl_core.errors import StateFormatError
from service.scorecard import WINDOW, Scorecard

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
    for report in (card.report(classifier=True), card.report(classifier=False)):
        assert (report["rounds"], report["window"]) == (n, min(n, WINDOW))
        assert report["loss"] == pytest.approx(losses.sum())
        assert report["mean_loss"] == pytest.approx(losses.mean())
        assert report["window_loss"] == pytest.approx(losses[-WINDOW:].mean())
    told = card.report(classifier=True)
    assert told["mistakes"] == errors.sum()
    assert told["mistake_rate"] == pytest.approx(errors.mean())
    assert told["window_mistake_rate"] == pytest.approx(errors[-WINDOW:].mean())
    told = card.report(classifier=False)
    assert told["rmse"] == pytest.approx(math.sqrt(errors.mean()))
    assert told["window_rmse"] == pytest.approx(math.sqrt(errors[-WINDOW:].mean()))


def test_nothing_yet() -> None:
    for classifier in (True, False):
        report = Scorecard().report(classifier=classifier)
        assert set(report.values()) == {0, None}


@pytest.mark.parametrize("n", SIZES)
def test_packed_and_continued(n: int) -> None:
    """A card that was packed in between tells the same for ever after."""
    card, _, _ = filled(n)
    again = Scorecard.unpack(card.pack())
    for i in range(WINDOW + 10):
        for one in (card, again):
            one.add(0.1 * i, float(i % 2))
        if i in (0, 1, WINDOW):
            assert again.report(classifier=True) == card.report(classifier=True)


def test_many_at_once_is_one_by_one() -> None:
    card, losses, errors = filled(700)
    at_once = Scorecard()
    at_once.add_many(losses, errors)
    assert at_once.report(classifier=False) == card.report(classifier=False)


@pytest.mark.parametrize(
    "arrays",
    [{}, {"totals": np.zeros(3)}, {"totals": np.zeros(1), "window": np.zeros((2, 0))}]
    + [{"totals": np.zeros(3), "window": np.zeros(shape)} for shape in ((5,), (3, 4), (2, WINDOW + 1))],
)
def test_other_arrays_are_refused(arrays: dict[str, np.ndarray]) -> None:
    with pytest.raises(StateFormatError):
        Scorecard.unpack(arrays)
