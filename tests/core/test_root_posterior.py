"""The root of A^{-1}: its rounds, blocks and discounts against A itself."""

from __future__ import annotations

import numpy as np
import pytest

from okl_core.second_order.forgetting import STAIRS, HalfLife
from okl_core.second_order.root_posterior import RootBlock, RootPosterior, RootRounds
from okl_core.second_order.space_and_rule import Decision
from okl_core.types import F64

P = 5


def learned(rounds: type[RootRounds | RootBlock], root: RootPosterior, Phi: F64, w: F64, c: F64) -> None:
    """Rounds with these weights and coefficients."""
    learning = rounds(root, Phi)
    for j, (weight, coefficient) in enumerate(zip(w.tolist(), c.tolist(), strict=True)):
        projection = learning.project(j)
        rho_delta = 0.0 if weight == 0.0 else coefficient / np.sqrt(weight) - np.sqrt(weight) * projection.m
        learning.absorb(projection, Decision(0.0, weight, coefficient, rho_delta))
    learning.settle()


@pytest.mark.parametrize("alpha", [1.0, 1e-3])
@pytest.mark.parametrize("rounds", [RootRounds, RootBlock])
def test_it_is_the_inverse_of_the_sum_also_where_it_forgets(rounds: type[RootRounds | RootBlock], alpha: float) -> None:
    rng = np.random.default_rng(0)
    root, A, s = RootPosterior.prior(alpha, P), alpha * np.eye(P), np.zeros(P)
    for factor in (0.5, 0.9, 0.99):
        Phi, w, c = rng.standard_normal((20, P)), rng.random(20), rng.standard_normal(20)
        w[rng.random(20) < 0.3] = 0.0
        learned(rounds, root, Phi, w, c)
        root.discount(factor, alpha)
        A = factor * (A + (Phi.T * w) @ Phi) + (1.0 - factor) * alpha * np.eye(P)
        s = factor * (s + Phi.T @ c)
        np.testing.assert_allclose(root.S @ root.S.T @ A, np.eye(P), rtol=0.0, atol=1e-12 * np.linalg.cond(A))
        np.testing.assert_allclose(root.u, np.linalg.solve(A, s), rtol=1e-10, atol=1e-12)


def test_rounds_that_are_not_settled_leave_no_trace() -> None:
    root = RootPosterior.prior(1.0, P)
    learning = RootRounds(root, np.ones((3, P)))
    learning.absorb(learning.project(0), Decision(0.0, 1.0, 1.0, 1.0))
    assert np.array_equal(root.S, np.eye(P))
    assert not root.u.any()


def test_discounts_go_on_for_ever_without_losing_the_sign_or_alpha() -> None:
    rng, root, alpha = np.random.default_rng(1), RootPosterior.prior(1e-6, P), 1e-6
    for _ in range(2000):
        # In a line, and so large that the rest of A is only what is put back.
        learned(RootRounds, root, 1e4 * rng.standard_normal((1, 1)) * np.ones((1, P)), np.ones(1), np.ones(1))
        root.discount(0.5, alpha)
    values = np.linalg.eigvalsh(root.S @ root.S.T) * alpha
    np.testing.assert_allclose(values[1:], 1.0, rtol=1e-6)
    assert 0.0 <= values[0] < 1e-10


@pytest.mark.parametrize("rounds", [8, 9, 30, 1000])
def test_a_half_life_halves_in_its_rounds(rounds: int) -> None:
    forgetting = HalfLife(rounds)
    times = [t for t in range(1, 10 * rounds + 1) if forgetting.factor(t) is not None]
    weight = np.prod([forgetting.factor(t) or 0.0 for t in times])
    assert weight == pytest.approx(2.0 ** -(times[-1] / rounds))
    assert times[STAIRS - 1] <= rounds
    assert forgetting.room(0, 10**6) == times[0] == forgetting.room(times[2], 10**6)
    assert forgetting.room(times[3] - 1, 10**6) == 1
