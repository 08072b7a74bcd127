"""POMDR against the numbers published for it: [li2023] tables 2 and 3, set magic04, sigma = 0.5."""

from __future__ import annotations

import math

import numpy as np
import pytest

from okl_core import create
from service.demo_data import magic

PERMUTATIONS = 3


@pytest.mark.slow
def test_mistakes_and_alignment_on_magic() -> None:
    X, y = magic()
    T = len(y)
    config = {
        "kernel": {"kind": "gaussian", "sigma": 0.5},
        "horizon": T,
        "pomd_budget": round(15.0 * math.log(T)),
        "step_factor": 0.05,
    }
    rates, sums = [], []
    for seed in range(PERMUTATIONS):
        order = np.random.default_rng(seed).permutation(T)
        learner = create({"kind": "pomdr", "config": config}, X.shape[1])
        values = learner.run(X[order], y[order]).values
        rates.append(100.0 * np.mean(np.where(values >= 0.0, 1.0, -1.0) != y[order]))
        sums.append(learner.describe()["sum_delta"])
    assert np.mean(rates) == pytest.approx(16.17, abs=0.5)
    assert np.mean(sums) == pytest.approx(6385.0, rel=0.04)
