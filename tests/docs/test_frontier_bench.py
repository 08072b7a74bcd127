"""`bench.frontier`: every learner of its tables plays, and the Newton step of Li and Liao is what its line says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.frontier import COLUMNS, lines, of_numbers, play
from okl_core.types import F64


def stream(n: int) -> tuple[F64, F64]:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 3))
    return X, 0.5 + 0.3 * np.sin(5.0 * X[:, 0]) * X[:, 1] + 0.05 * rng.standard_normal(n)


@pytest.mark.parametrize("are_labels", [True, False], ids=["labels", "numbers"])
def test_every_learner_has_a_line(are_labels: bool) -> None:
    X, y = stream(90)
    told = list(lines(X, np.where(y > 0.5, 1.0, -1.0) if are_labels else y, budget=20, orders=2))
    assert len(told) == (10 if are_labels else 7)
    for error, cells in told:
        assert len(cells) == len(COLUMNS)
        assert 0.0 < error < 100.0
        assert int(cells[4]) <= 21  # skegd keeps one more


def test_one_of_them_is_nearly_nons_ald() -> None:
    X, y = stream(600)
    order = np.random.default_rng(0).permutation(len(y))
    published = next(one for one in of_numbers(len(y), 400) if "NONS" in one.name)
    values, points = nons_ald(X[order], y[order], sigma=0.5)
    told = play(published, 0.5, X, y, seed=0)
    assert told.error == pytest.approx(1000.0 * np.square(values - y[order]).mean(), rel=0.03)
    assert told.points == points


def nons_ald(X: F64, y: F64, sigma: float) -> tuple[F64, int]:
    """Forecasts and points of the published algorithm, textbook step, C = mu = 1, eta = 1/8, with dense matrices.

    In the basis of the Cholesky factor of the dictionary's kernel matrix a new point is a coordinate more.
    """
    K = np.exp(-np.square(X[:, None] - X[None]).sum(axis=2) / (2.0 * sigma * sigma))
    chosen, A, w, values = [0], np.eye(1), np.zeros(1), [0.0]
    pending = np.zeros(1)
    for t in range(1, len(y)):
        L = np.linalg.cholesky(K[np.ix_(chosen, chosen)])
        z = np.linalg.solve(L, K[chosen, t])
        left = max(1.0 - z @ z, 0.0)
        u, m = np.linalg.solve(A, z), pending @ z
        w = pending - math.copysign(max(abs(m) - 1.0, 0.0), m) / (z @ u) * u
        values.append(float(w @ z))
        if left > 25.0 / len(y):
            chosen.append(t)
            z, w = np.append(z, math.sqrt(left)), np.append(w, 0.0)
            A = np.block([[A, np.zeros((len(A), 1))], [np.zeros((1, len(A))), np.eye(1)]])
        g = 2.0 * (values[-1] - y[t])
        A = A + g * g / 8.0 * np.outer(z, z)
        pending = w - g * np.linalg.solve(A, z)
    return np.array(values), len(chosen)
