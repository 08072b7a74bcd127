"""The bounds of `ahpatron`, `nons-ald` and `aogd-ald` in `describe`: each term of theorems 8 to 10, by dense algebra."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from okl_core import create
from okl_core.kernels.kernels import Gaussian
from okl_core.learners.ahpatron.ahpatron_state import AhpatronState
from okl_core.learners.ald.aogd_ald_state import AogdAldState
from okl_core.types import F64
from tests.core.states import state_as

KERNEL = Gaussian(sigma=0.5)
ROUNDS = 120


def stream(seed: int) -> tuple[F64, F64]:
    """Inputs of which some come again, and truths at the ends of the range."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (ROUNDS, 2))
    X[ROUNDS // 2 :: 3] = X[: ROUNDS // 2 : 3]
    return X, np.where(X[:, 0] + 0.5 * rng.standard_normal(ROUNDS) > 0.0, 1.0, -1.0)


class Function:
    """sum_i a_i k(s_i, .)"""

    def __init__(self, S: F64, a: F64) -> None:
        self.S, self.a = S.reshape(-1, 2), a

    def at(self, x: F64) -> float:
        return float(self.a @ KERNEL.gram(np.vstack((self.S, x)))[:-1, -1])

    def minus(self, other: Function) -> Function:
        return Function(np.vstack((self.S, other.S)), np.concatenate((self.a, -other.a)))

    @property
    def norm(self) -> float:
        return math.sqrt(max(0.0, self.a @ KERNEL.gram(self.S) @ self.a)) if len(self.a) else 0.0


@pytest.mark.parametrize(("budget", "slack"), [(2, 0.5), (6, 0.0), (12, 0.5)])
def test_theorem_8(budget: int, slack: float) -> None:
    X, y = stream(budget)
    config = {"kernel": KERNEL.model_dump(), "budget": budget, "slack": slack}
    learner = create({"kind": "ahpatron", "config": config}, 2)
    U, weight = math.sqrt(budget) / 2.0, 0.25
    bound = U * U / (2.0 * weight)
    f = Function(np.empty((0, 2)), np.empty(0))
    for x, truth in zip(X, y.tolist(), strict=True):
        is_full, margin = len(f.a) == budget, truth * f.at(x)
        learner.update(x, truth)
        state = state_as(AhpatronState, learner)
        after = Function(state.points.coordinates(), state.coefficients.view.copy())
        if margin < 1.0 - slack:
            # The new point tells how the whole was scaled into the ball.
            scale = after.a[-1] / (weight * truth)
            left = Function(after.S[:-1], after.a[:-1] / scale) if is_full else f
            moved = left.minus(f)
            bound += weight / 2.0 + U / weight * moved.norm + truth * moved.at(x)
        else:
            bound += max(0.0, 1.0 - margin)
        f = after
    assert learner.describe()["halvings"] > 2
    assert learner.describe()["bound"] == pytest.approx(bound, rel=1e-7)


@pytest.mark.parametrize("step", ["textbook", "shipped"])
@pytest.mark.parametrize(("clip", "budget"), [(1.0, 400), (0.3, 400), (0.3, 4)])
def test_theorem_9(step: str, clip: float, budget: int) -> None:
    X, y = stream(1)
    C, mu, threshold, y = clip, 0.3, 0.2, clip * y
    config = {"kernel": KERNEL.model_dump(), "clip": C, "regularization": mu, "threshold": threshold, "step": step}
    learner = create({"kind": "nons-ald", "config": config | {"budget": budget}}, 2)
    learner.run(X, y)
    K, eta, S = KERNEL.gram(X), 1.0 / (8.0 * C * C), [0]
    A, v, gradient, missed, square, clipped = mu * np.eye(1), np.zeros(1), y[0] ** 2, 0.0, 0.0, 0
    for t in range(1, ROUNDS):
        z = np.linalg.solve(np.linalg.cholesky(K[np.ix_(S, S)]), K[S, t])
        a = b = math.sqrt(max(0.0, 1.0 - z @ z))
        q, value = z @ np.linalg.solve(A, z), min(max(v @ z, -C), C)
        h = v @ z - value
        clipped += h != 0.0
        v = v - h / q * np.linalg.solve(A, z)
        gradient -= h * h / (2.0 * q)
        missed += a * abs(h) / q
        has_joined = a > threshold and len(S) < budget
        if has_joined:
            S, z, v, b = [*S, t], np.append(z, a), np.append(v, 0.0), 0.0
            A = np.pad(A, (0, 1))
            A[-1, -1] = mu
        q, g = z @ np.linalg.solve(A, z), 2.0 * (value - y[t])
        w = eta * g * g
        missed += b * abs(g) * (1.0 + 2.0 * C * eta * abs(g))
        square += b * b * w / 2.0
        if step == "textbook" or has_joined:
            gradient += g * g * q / (2.0 * (1.0 + w * q))
            v = v - g / (1.0 + w * q) * np.linalg.solve(A, z)
        else:
            gradient += g * g * q * (1.0 + w * q) / 2.0 + 2.0 * C * w * abs(g) * q
            missed += b * w * abs(g) * q
            v = v - g * np.linalg.solve(A, z)
        A = A + w * np.outer(z, z)
    told = learner.describe()
    assert told["dictionary"] == len(S)
    assert clipped > 10
    # The distance of an input that is in the dictionary is what rounding leaves of 0.
    assert told["bound_gradient"] == pytest.approx(gradient, rel=1e-9)
    assert told["bound_missed"] == pytest.approx(missed, rel=1e-5)
    assert told["bound_square"] == pytest.approx(square, rel=1e-9)


@pytest.mark.parametrize(
    "config", [{}, {"dictionary_size": 5}, {"dictionary_size": 3, "budget": 8}, {"dictionary_size": 8, "budget": 8}]
)
@pytest.mark.parametrize("U", [0.6, 3.0])
def test_theorem_10(config: dict[str, Any], U: float) -> None:
    X, y = stream(2)
    own = {"kernel": KERNEL.model_dump(), "norm_bound": U, "threshold": 0.2}
    learner = create({"kind": "aogd-ald", "config": own | config}, 2)
    f, G, price, is_projecting = Function(np.empty((0, 2)), np.empty(0)), 1.0, 0.0, True
    for x, truth in zip(X, y.tolist(), strict=True):
        error, size = f.at(x) - truth, len(f.a)
        oldest = state_as(AogdAldState, learner).oldest
        learner.update(x, truth)
        state = state_as(AogdAldState, learner)
        K = KERNEL.gram(np.vstack((f.S, x)))
        alpha = max(0.0, 1.0 - K[-1, :-1] @ np.linalg.solve(K[:-1, :-1], K[:-1, -1])) if is_projecting else 0.0
        if is_projecting and size and math.sqrt(alpha) <= 0.2:
            G += 4.0 * error * error * (1.0 - alpha)
            price += 2.0 * U * abs(error) * math.sqrt(alpha)
        else:
            G += 4.0 * error * error
            if size == config.get("budget", math.inf):
                gone = Function(f.S[[oldest]], f.a[[oldest]])
                left = f.minus(gone)
                price += (left.norm**2 - f.norm**2 + 2.0 * U * gone.norm) * math.sqrt(G) / (2.0 * U)
                price += 2.0 * error * gone.at(x)
            is_projecting = is_projecting and size + 1 < config.get("dictionary_size", math.inf)
        f = Function(state.points.coordinates(), state.coefficients.view.copy())
    told = learner.describe()
    assert (told["dropped"] > 20) == ("budget" in config)
    assert told["bound"] == pytest.approx(3.0 * U * math.sqrt(G) - U + price, rel=1e-6)
