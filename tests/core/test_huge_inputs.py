"""Bounds hold where inputs of huge norm come among short ones, and truths are the opposite of every forecast.

Squares of what is large beside what is small have no digits left of the small: arithmetic that is right for inputs of one
size may then lose what a bound is made of.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from okl_core import create
from okl_core.errors import DivergedError, InputError
from tests.budget import TIMES

ROUNDS = 25
LINEAR = {"kind": "linear"}
SQUARED = {"loss": "squared", "clip": 1.0}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "aioli": ("aioli", {}),
    "aioli, exact": ("aioli", {"curvature": "exact"}),
    "aioli, 30": ("aioli", {"comparator_norm": 30.0}),
    "kernel-aioli": ("kernel-aioli", {"kernel": LINEAR}),
    "nystrom-aioli": ("nystrom-aioli", {"kernel": LINEAR}),
    "ogd-logistic": ("ogd-logistic", {}),
    "ons": ("ons", SQUARED),
    "ons, logistic": ("ons", {"loss": "logistic", "clip": 3.0, "step": "adaptive"}),
    "kons": ("kons", SQUARED | {"kernel": LINEAR, "step": "adaptive"}),
    "pros-n-kons": ("pros-n-kons", SQUARED | {"kernel": LINEAR}),
    "kernel-ridge": ("kernel-ridge", {"kernel": LINEAR, "clip": 1.0}),
    "kernel-aar": ("kernel-aar", {"kernel": LINEAR, "clip": 1.0}),
    "nystrom-ridge": ("nystrom-ridge", {"kernel": LINEAR, "clip": 1.0}),
    "nons-ald": ("nons-ald", {"kernel": LINEAR}),
    "nons-ald, shipped": ("nons-ald", {"kernel": LINEAR, "step": "shipped"}),
    "aogd-ald": ("aogd-ald", {"kernel": LINEAR, "budget": 5}),
    "ahpatron": ("ahpatron", {"kernel": LINEAR, "budget": 4}),
}


@pytest.mark.parametrize("scale", [1e2, 1e5, 1e8, 1e12])
@pytest.mark.parametrize("name", KINDS)
def test_the_loss_is_at_most_that_of_forecasting_nothing_and_the_bound(name: str, scale: float) -> None:
    kind, config = KINDS[name]
    for seed in range(3 * TIMES):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(1, 4))
        X = rng.normal(size=(ROUNDS, d)) * np.where(rng.random(ROUNDS) < 0.5, scale, 1.0)[:, None]
        learner, lost, learned = create({"kind": kind, "config": config}, d), 0.0, 0
        for x in X:
            try:
                y = -1.0 if learner.predict(x).value > 0.0 else 1.0
                lost += learner.update(x, y).loss
            except (DivergedError, InputError):
                # Refused: nothing was learned, and nothing counts.
                continue
            learned += 1
        told = learner.describe()
        nothing = learned * (math.log(2.0) if "aioli" in kind or "logistic" in name else 1.0)
        least = told.get("comparator_loss", nothing)
        allowed = told["bound"] if "bound" in told else told["bound_gradient"] + told.get("bound_step", 0.0)
        assert lost <= least + allowed * (1.0 + 1e-9) + 1e-9
