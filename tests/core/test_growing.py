"""Growing arrays and the append-only factor against plain numpy, at and around the border of a panel."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_triangular

from okl_core.errors import NotPositiveDefiniteError, StateFormatError
from okl_core.linalg.cholesky import PANEL, Factor
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64
from tests.core.states import dense

BORDERS = [0, 1, PANEL - 1, PANEL, PANEL + 1, 2 * PANEL - 1, 2 * PANEL, 3 * PANEL + 1]

sizes = st.sampled_from(BORDERS) | st.integers(0, 2 * PANEL + 5)
seeds = st.integers(0, 2**32 - 1)


def triangle(n: int, seed: int) -> F64:
    """A well-conditioned lower factor."""
    rng = np.random.default_rng(seed)
    return np.tril(rng.standard_normal((n, n)), -1) / max(1.0, np.sqrt(n)) + np.diag(rng.uniform(1.0, 2.0, n))


def grown(rows: F64) -> Factor:
    factor = Factor()
    for i, row in enumerate(rows):
        factor.append(row[:i], float(row[i]))
    return factor


@given(n=sizes, columns=st.integers(0, 5), seed=seeds)
@settings(deadline=None)
def test_solves_are_those_of_the_dense_triangle(n: int, columns: int, seed: int) -> None:
    L = triangle(n, seed)
    factor = grown(L)
    B = np.random.default_rng(seed + 1).standard_normal((n, columns))
    kept = B.copy()
    assert len(factor) == n
    np.testing.assert_array_equal(dense(factor), L)
    expected = solve_triangular(L, B, lower=True) if n and columns else B
    np.testing.assert_allclose(factor.solve(B), expected, atol=1e-12)
    for j in range(columns):
        np.testing.assert_allclose(factor.solve(B[:, j]), expected[:, j], atol=1e-12)
        transposed = solve_triangular(L, B[:, j], lower=True, trans="T") if n else B[:, j]
        np.testing.assert_allclose(factor.solve_transposed(B[:, j]), transposed, atol=1e-12)
    np.testing.assert_array_equal(B, kept)


@given(n=sizes.filter(lambda n: n > 0), seed=seeds)
@settings(deadline=None, max_examples=20)
def test_the_norm_of_the_inverse_is_estimated_from_below(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    L, scales = triangle(n, seed), rng.uniform(0.5, 2.0, n) * (rng.random(n) < 0.9)
    # Two rows that nearly repeat the ones before them, where there is room.
    for i in range(max(n - 2, 1), n):
        L[i] = L[i - 1]
        L[i, i] = 1e-3
    exact = float(np.linalg.norm(solve_triangular(L, np.diag(scales), lower=True), 2)) ** 2
    # Of the order of the norm, since each step is closer to it and the first is at least a diagonal entry.
    assert exact / 100.0 <= grown(L).inverse_norm(scales) <= exact * (1.0 + 1e-9)


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan])
def test_what_is_no_factor_is_not_unpacked(wrong: float) -> None:
    packed = triangle(PANEL + 3, 0)[np.tril_indices(PANEL + 3)]
    packed[-1] = wrong
    with pytest.raises(StateFormatError, match="not positive"):
        Factor.unpack(packed)


@given(n=sizes, more=st.integers(0, PANEL + 2), seed=seeds)
@settings(deadline=None)
def test_an_unpacked_factor_grows_on_bit_for_bit(n: int, more: int, seed: int) -> None:
    L = triangle(n + more, seed)
    live = grown(L[:n])
    packed = live.pack()
    np.testing.assert_array_equal(packed, L[:n][np.tril_indices(n, m=n + more)])
    again = Factor.unpack(packed)
    packed[:] = np.nan
    for i in range(n, n + more):
        for factor in (live, again):
            factor.append(L[i, :i], float(L[i, i]))
    b = np.ones(n + more)
    np.testing.assert_array_equal(live.solve(b), again.solve(b))
    np.testing.assert_array_equal(live.pack(), again.pack())
    assert live.nbytes == again.nbytes


@pytest.mark.parametrize("n", BORDERS)
def test_the_padding_of_a_factor_is_at_most_a_panel(n: int) -> None:
    assert grown(triangle(n, 0)).nbytes <= 8 * (n + PANEL) * (n + 2 * PANEL) // 2


@pytest.mark.parametrize("n", [0, 3, PANEL - 1, PANEL])
@pytest.mark.parametrize("diagonal", [0.0, -1e-300, float("nan")])
def test_a_refused_row_leaves_the_factor_as_it_was(n: int, diagonal: float) -> None:
    factor = grown(triangle(n, 0))
    before = factor.pack(), factor.nbytes
    with pytest.raises(NotPositiveDefiniteError, match=f"entry {n + 1}"):
        factor.append(np.ones(n), diagonal)
    np.testing.assert_array_equal(factor.pack(), before[0])
    assert factor.nbytes == before[1]


@pytest.mark.parametrize("numbers", [2, 4, 5, 7, 2081])
def test_what_is_no_triangle_is_refused(numbers: int) -> None:
    with pytest.raises(StateFormatError, match=f"{numbers} numbers"):
        Factor.unpack(np.ones(numbers))


@given(lengths=st.lists(st.integers(0, 40), max_size=8), width=st.sampled_from([(), (1,), (3,), (2, 2)]), seed=seeds)
def test_a_growing_array_is_the_stack_of_its_rows(lengths: list[int], width: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks = [rng.standard_normal((n, *width)) for n in lengths]
    array = GrowingArray(*width)
    for i, block in enumerate(blocks):
        if i % 2:
            array.extend(block)
        else:
            for row in block:
                array.append(row)
    expected = np.concatenate([np.empty((0, *width)), *blocks])
    assert len(array) == len(expected)
    np.testing.assert_array_equal(array.view, expected)
    assert array.nbytes <= 8 * 2 * max(16, len(expected)) * int(np.prod(width))
    again = GrowingArray.unpack(array.pack())
    again.append(np.zeros(width))
    again.truncate(len(expected) // 2)
    np.testing.assert_array_equal(again.view, expected[: len(expected) // 2])
    np.testing.assert_array_equal(array.view, expected)


def test_a_packed_array_is_a_copy() -> None:
    array = GrowingArray()
    array.extend(np.arange(3.0))
    packed = array.pack()
    packed[:] = -1.0
    np.testing.assert_array_equal(array.view, [0.0, 1.0, 2.0])


@given(n=sizes, kept=sizes, more=st.integers(0, PANEL + 2), seed=seeds)
@example(n=2 * PANEL, kept=PANEL, more=1, seed=0)
@settings(deadline=None)
def test_a_copy_and_its_original_grow_and_shrink_apart(n: int, kept: int, more: int, seed: int) -> None:
    L, other = triangle(n + more, seed), triangle(n + more, seed + 1)
    original = grown(L[:n])
    copied = copy.deepcopy(original)
    # Only where rows go: a factor owns its last panel after each truncation.
    if kept < n:
        copied.truncate(kept)
    for i in range(len(copied), n + more):
        copied.append(other[i, :i], float(other[i, i]))
    np.testing.assert_array_equal(dense(original), L[:n, :n])
    for i in range(n, n + more):
        original.append(L[i, :i], float(L[i, i]))
    np.testing.assert_array_equal(dense(original), L)
    np.testing.assert_array_equal(dense(copied), np.vstack((L[: min(n, kept)], other[min(n, kept) :])))


@given(n=st.integers(0, 40), more=st.integers(0, 40))
def test_a_copied_array_is_one_of_its_own(n: int, more: int) -> None:
    original = GrowingArray.unpack(np.arange(float(n)))
    copied = copy.deepcopy(original)
    # What is written into the view must still be there when the array grows.
    copied.view[:] += 1.0
    for i in range(more):
        copied.append(float(i))
    np.testing.assert_array_equal(original.view, np.arange(float(n)))
    np.testing.assert_array_equal(copied.view, np.append(np.arange(float(n)) + 1.0, np.arange(float(more))))
