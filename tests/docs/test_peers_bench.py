"""The contestants of `python -m bench.peers` play."""

from __future__ import annotations

import math

import pytest
from river import datasets, linear_model, metrics, preprocessing

from bench.peers.learning import CONTESTANTS, SETS, measure, play

ROUNDS = 260


def test_the_error_is_that_of_the_library_itself() -> None:
    """In another process, with River's own count of mistakes."""
    rows, truths = (part[:ROUNDS] for part in SETS["phishing"]())
    assert len(SETS["phishing"]()[0]) == datasets.Phishing().n_samples
    model, right = preprocessing.StandardScaler() | linear_model.LogisticRegression(), metrics.Accuracy()
    for x, y in zip(rows, truths, strict=True):
        right.update(y, model.predict_one(x) or False)
        model.learn_one(x, y)
    assert measure("phishing", "River, logistic", ROUNDS).error == pytest.approx(1.0 - right.get(), abs=2 / ROUNDS)


TWO = [("phishing", name) for name in CONTESTANTS if "forest" not in name]
MANY = [("segments", name) for name in ("VW, pairs", "SGD, Fourier", "okl, aioli")]


@pytest.mark.parametrize(("data", "contestant"), TWO + MANY)
def test_every_contestant_learns(data: str, contestant: str) -> None:
    found = play(data, contestant, ROUNDS)
    assert 0.0 < found.error < (0.5 if data == "phishing" else 0.9)
    assert math.isfinite(found.log_loss)
    assert found.cpu_us > 0.0
