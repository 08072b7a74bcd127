"""Thinned rows: the rule on all chunks, the bound, and exact state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core.errors import ShapeError, StateFormatError
from okl_core.monitoring import Thinned
from okl_core.types import F64

WIDTHS, LEVELS = st.sampled_from((2, 4, 6, 10)), st.integers(1, 4)


def lengths(chunks: int, width: int, levels: int) -> tuple[list[int], int]:
    """Chunks in each row and in a unit, by the rule on lists of lengths alone, oldest first."""
    unit, waiting, rows = 1, 0, [[] for _ in range(levels)]
    for _ in range(chunks):
        waiting += 1
        if waiting < unit:
            continue
        if all(len(level) == width for level in rows):
            pairs = [rows[0][i] + rows[0][i + 1] for i in range(0, width, 2)]
            rows = [*rows[1:], []]
            rows[0] += pairs
            unit *= 2
        else:
            rows[0].append(unit)
            waiting = 0
        for k in range(levels):
            while len(rows[k]) > width:
                rows[k + 1].append(rows[k].pop(0) + rows[k].pop(0))
    return [length for level in reversed(rows) for length in level], unit


def played(chunks: F64, width: int, levels: int) -> Thinned:
    thinned = Thinned(2, 1, width=width, levels=levels)
    for row in chunks:
        thinned.add(row)
    return thinned


def drawn(count: int) -> F64:
    """Integers, whose sums are exact."""
    return np.random.default_rng(count).integers(-1000, 1000, (count, 3)).astype(float)


@given(st.integers(0, 400), WIDTHS, LEVELS)
def test_rows_are_sums_by_the_rule(count: int, width: int, levels: int) -> None:
    chunks = drawn(count)
    thinned = played(chunks, width, levels)
    expected, unit = lengths(count, width, levels)
    assert thinned.chunks.tolist() == expected
    assert len(thinned) == len(expected) <= width * levels
    assert all(a >= b and a & (a - 1) == 0 for a, b in zip(expected, [*expected[1:], 1], strict=False))
    assert count - unit < sum(expected) <= count
    ends = np.cumsum([0, *expected])
    for row, start, end in zip(thinned.rows, ends[:-1], ends[1:], strict=True):
        assert row[:2].tolist() == chunks[start:end, :2].sum(axis=0).tolist()
        assert row[2] == chunks[end - 1, 2]


@given(st.integers(0, 300), st.integers(0, 100), WIDTHS, LEVELS)
def test_a_state_in_the_middle_continues_bit_for_bit(before: int, after: int, width: int, levels: int) -> None:
    chunks = np.random.default_rng(before).standard_normal((before + after, 3))
    thinned = played(chunks[:before], width, levels)
    again, copied = Thinned.unpack(thinned.pack()), thinned.copy()
    for row in chunks[before:]:
        for one in (thinned, again, copied):
            one.add(row)
    arrays = {name: array.tobytes() for name, array in thinned.pack().items()}
    for one in (again, copied):
        assert {name: array.tobytes() for name, array in one.pack().items()} == arrays
        assert one.nbytes <= thinned.nbytes


def test_the_bound_holds_after_many_chunks() -> None:
    thinned, row, bound = Thinned(1, 1, width=4, levels=6), np.array([1.0, 0.0]), (4 * 6 + 1) * 2 * 8
    for t in range(200_000):
        row[1] = t
        thinned.add(row)
        if not t % 10_000:
            assert thinned.nbytes <= bound
    assert thinned.nbytes == bound
    assert thinned.rows[:, 0].tolist() == thinned.chunks.tolist()
    assert (thinned.rows[:, 1] == thinned.chunks.cumsum() - 1).all()
    assert 200_000 - thinned.chunks[-1] < thinned.chunks.sum() <= 200_000


def test_a_copy_shares_nothing() -> None:
    thinned = played(drawn(5), 4, 2)
    copied, rows = thinned.copy(), thinned.rows.tolist()
    copied.add(np.ones(3))
    copied.rows[:] = 0.0
    assert thinned.rows.tolist() == rows


@pytest.mark.parametrize(
    ("sums", "latest", "width", "levels"), [(0, 0, 2, 1), (-1, 2, 2, 1), (1, 0, 3, 1), (1, 0, 2, 0)]
)
def test_sizes_are_checked(sums: int, latest: int, width: int, levels: int) -> None:
    with pytest.raises(ValueError, match=r"must|needs"):
        Thinned(sums, latest, width=width, levels=levels)


def test_a_row_of_another_shape_changes_nothing() -> None:
    thinned = played(drawn(3), 2, 2)
    with pytest.raises(ShapeError):
        thinned.add(np.zeros(2))
    assert thinned.rows.tolist() == played(drawn(3), 2, 2).rows.tolist()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows", np.zeros((2, 3))),
        ("rows", np.full((5, 3), np.nan)),
        ("counts", np.array([6.0, -1.0])),
        ("counts", np.array([5.0])),
        ("pending", np.zeros(2)),
        ("sizes", np.array([2.0, 1.0, 4.0, 2.0, 3.0, 0.0])),
        ("sizes", np.array([2.0, 1.0, 4.0, 2.0, 1.0, 1.0])),
        ("sizes", np.array([1e300, 1.0, 4.0, 2.0, 1.0, 0.0])),
        ("sizes", np.array([2.0, 1.0, 1e300, 2.0, 1.0, 0.0])),
        ("sizes", np.array([2.0, 1.0, 4.0, 2.0, np.nan, 0.0])),
        ("sizes", np.zeros(3)),
        ("more", np.zeros(3)),
    ],
)
def test_arrays_that_are_no_state_are_refused(name: str, value: F64) -> None:
    arrays = played(drawn(6), 4, 2).pack()
    with pytest.raises(StateFormatError):
        Thinned.unpack(arrays | {name: value})
