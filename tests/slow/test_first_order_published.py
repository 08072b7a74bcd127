"""FOGD and NOGD against the mistakes published for them: [li2023] table 2, set magic04."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from okl_core import create
from service.demo_data import magic


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "more", "published", "sd"),
    [("fogd", {}, 16.88, 0.15), ("nogd", {"buffer": "first"}, 17.31, 0.20)],
    ids=["fogd", "nogd"],
)
def test_mistakes_on_magic(kind: str, more: dict[str, Any], published: float, sd: float) -> None:
    X, y = magic()
    config = {
        "kernel": {"kind": "gaussian", "sigma": 0.5},
        "step_size": "horizon",
        "step_factor": 100.0,
        "horizon": len(y),
        **more,
    }
    mistakes = []
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(len(y))
        values = create({"kind": kind, "seed": seed, "config": config}, X.shape[1]).run(X[order], y[order]).values
        mistakes.append(100.0 * np.mean(np.where(values >= 0.0, 1.0, -1.0) != y[order]))
    # Both are means of ten runs.
    assert np.mean(mistakes) == pytest.approx(published, abs=3.0 * sd * math.sqrt(2.0 / 10.0))
    assert np.std(mistakes, ddof=1) < 2.0 * sd
