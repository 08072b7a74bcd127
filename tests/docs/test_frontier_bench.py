"""`bench.frontier`: every learner of its tables plays."""

from __future__ import annotations

import numpy as np
import pytest

from bench.frontier import COLUMNS, lines
from okl_core.types import F64


def stream(n: int) -> tuple[F64, F64]:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 3))
    return X, 0.5 + 0.3 * np.sin(5.0 * X[:, 0]) * X[:, 1] + 0.05 * rng.standard_normal(n)


@pytest.mark.parametrize("are_labels", [True, False], ids=["labels", "numbers"])
def test_every_learner_has_a_line(are_labels: bool) -> None:
    X, y = stream(90)
    told = list(lines(X, np.where(y > 0.5, 1.0, -1.0) if are_labels else y, budget=20, orders=2))
    assert len(told) == (10 if are_labels else 8)
    for error, cells in told:
        assert len(cells) == len(COLUMNS)
        assert 0.0 < error < 100.0
        assert int(cells[4]) <= 21  # skegd keeps one more
