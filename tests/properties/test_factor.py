"""The append-only factor against a dense Cholesky factorisation, across its panels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core.errors import NotPositiveDefiniteError, StateFormatError
from okl_core.linalg.cholesky import PANEL, Factor
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64
from tests.core.states import dense

sizes = st.one_of(st.integers(0, 5), st.sampled_from([PANEL - 1, PANEL, PANEL + 1, 2 * PANEL, 2 * PANEL + 3]))
seeds = st.integers(0, 2**32 - 1)


def positive_definite(n: int, seed: int) -> F64:
    A = np.random.default_rng(seed).normal(size=(n, n + 2))
    return A @ A.T + np.eye(n)


def factor_of(K: F64) -> Factor:
    """Row by row, as learners do: each new row is a solve with the rows before."""
    L = Factor()
    for i in range(len(K)):
        z = L.solve(K[:i, i].copy())
        L.append(z, float(np.sqrt(K[i, i] - z @ z)))
    return L


@given(n=sizes, seed=seeds)
def test_it_is_the_cholesky_factor(n: int, seed: int) -> None:
    K = positive_definite(n, seed)
    L = factor_of(K)
    full = dense(L)
    np.testing.assert_allclose(full @ full.T, K, rtol=1e-10, atol=1e-10 * max(1, n))
    b, B = np.ones(n), np.random.default_rng(seed).normal(size=(n, 3))
    np.testing.assert_allclose(full @ L.solve(b), b, atol=1e-9)
    np.testing.assert_allclose(full @ L.solve(B), B, atol=1e-9)
    np.testing.assert_allclose(full.T @ L.solve_transposed(b), b, atol=1e-9)


@given(n=sizes, seed=seeds)
def test_it_comes_back_and_grows_on(n: int, seed: int) -> None:
    K = positive_definite(n + 1, seed)
    L = factor_of(K[:n, :n])
    packed = L.pack()
    assert packed.shape == (n * (n + 1) // 2,)
    again = Factor.unpack(packed)
    row = L.solve(K[:n, n].copy())
    for factor in (L, again):
        factor.append(row, 1.0)
    np.testing.assert_array_equal(dense(L), dense(again))


@pytest.mark.parametrize("diagonal", [0.0, -1.0, float("nan")])
def test_a_diagonal_that_is_not_positive_is_refused(diagonal: float) -> None:
    L = factor_of(positive_definite(3, 0))
    with pytest.raises(NotPositiveDefiniteError, match="entry 4"):
        L.append(np.zeros(3), diagonal)
    assert len(L) == 3


def test_numbers_that_are_no_triangle_are_refused() -> None:
    with pytest.raises(StateFormatError):
        Factor.unpack(np.ones(5))


@given(rows=st.lists(st.integers(0, 9), max_size=40), cut=st.integers(0, 40), capacity=st.integers(1, 4))
def test_a_growing_array_is_a_list(rows: list[int], cut: int, capacity: int) -> None:
    one_by_one, at_once = GrowingArray(2, capacity=capacity), GrowingArray(2, capacity=capacity)
    expected = np.array([[row, -row] for row in rows], dtype=np.float64).reshape(-1, 2)
    for row in expected:
        one_by_one.append(row)
    at_once.extend(expected)
    for array in (one_by_one, at_once, GrowingArray.unpack(at_once.pack())):
        np.testing.assert_array_equal(array.view, expected)
        array.truncate(cut)
        array.append(np.ones(2))
        np.testing.assert_array_equal(array.view, [*expected[:cut], [1.0, 1.0]])
