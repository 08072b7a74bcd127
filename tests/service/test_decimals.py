"""Columns of decimals in fewer bytes: the same doubles again, whatever they are."""

from __future__ import annotations

import math
import tracemalloc
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from okl_core.types import F64
from service.session import decimals
from service.session.codec import decode_inputs, encode_inputs, plain_inputs
from service.session.decimals import DOUBLES, FEW, MOST_DECIMALS, SAMPLE, pack_columns, unpack_columns

TINY, LARGEST = 5e-324, np.finfo(np.float64).max
ODD = (0.0, -0.0, math.nan, math.inf, -math.inf, TINY, LARGEST, -LARGEST, 0.1 + 0.2, 1e-9, 2.0**31, -(2.0**31), 2.0**53)
ANY_NUMBER = st.floats(width=64) | st.sampled_from(ODD)


def decimal(digits: int, places: int) -> float:
    """The double nearest to digits / 10^places, by way of text."""
    return float(Decimal(digits).scaleb(-places))


@st.composite
def columns(draw: st.DrawFn) -> F64:
    n = draw(st.integers(1, 3 * SAMPLE))
    found = []
    for _ in range(draw(st.integers(1, 4))):
        places, most = draw(st.integers(0, MOST_DECIMALS + 2)), draw(st.sampled_from([3, 200, 40_000, 2**33]))
        numbers = st.integers(-most, most).map(lambda digits, places=places: decimal(digits, places))
        column = draw(st.lists(numbers, min_size=n, max_size=n))
        for row in draw(st.lists(st.integers(0, n - 1), max_size=2)):
            column[row] = draw(ANY_NUMBER)
        found.append(column)
    return np.array(found).T.copy()


def bits(X: F64) -> bytes:
    return np.ascontiguousarray(X).tobytes()


@given(columns(), st.binary(max_size=5))
def test_the_same_doubles_again(X: F64, before: bytes) -> None:
    blob = pack_columns(X)
    again, end = unpack_columns(before + blob + b"more", len(before), *X.shape)
    assert bits(again) == bits(X)
    assert end == len(before) + len(blob)
    assert len(blob) <= X.shape[1] + X.nbytes


@pytest.mark.parametrize("odd", [-0.0, float(np.array(0x7FF0_0000_0000_0001).view(np.float64))])
def test_bits_that_integers_have_not(odd: float) -> None:
    """The sign of a zero; a NaN that signals."""
    X = np.array([[1.0], [odd], [2.5]])
    assert bits(unpack_columns(pack_columns(X), 0, *X.shape)[0]) == bits(X)


@given(st.integers(0, MOST_DECIMALS), st.sampled_from(decimals.WIDTHS), st.data())
@example(2, 1, None)
def test_decimals_take_the_narrowest_integers(places: int, width: int, data: st.DataObject | None) -> None:
    edge = 2 ** (8 * width - 1) - 1
    digits = [] if data is None else data.draw(st.lists(st.integers(-edge, edge), max_size=50))
    digits += [edge, -edge, *[1] * FEW]
    X = np.array([[decimal(one, places)] for one in digits])
    blob = pack_columns(X)
    assert len(blob) == 1 + width * len(digits)
    assert bits(unpack_columns(blob, 0, *X.shape)[0]) == bits(X)
    beyond = np.vstack((X, [[decimal(edge + 1, places)]]))
    following = 2 * width if width < 4 else 8
    assert len(pack_columns(beyond)) == 1 + following * len(beyond)


def test_a_column_does_not_spoil_the_others() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 3))
    X[:, 0] = rng.integers(1, 10_000, 500) / 100
    X[:, 2] = rng.integers(0, 2, 500) * 2.0 - 1.0
    assert len(pack_columns(X)) == 3 + 500 * (2 + 8 + 1)


@pytest.mark.parametrize("place", [1, SAMPLE, -1])
def test_more_decimals_than_the_sample_has(place: int) -> None:
    X = np.arange(40.0 * SAMPLE)[:, np.newaxis]
    X[place] += 0.125
    assert len(pack_columns(X)) == 1 + 4 * len(X)
    assert bits(unpack_columns(pack_columns(X), 0, *X.shape)[0]) == bits(X)


@pytest.mark.parametrize("shape", [(2 * SAMPLE - 1, 10_000), (10_000, 100)])
def test_a_large_block_takes_little_memory_beside_it(shape: tuple[int, int]) -> None:
    """Every number of decimals is tried, but not on all columns at once."""
    X = np.round(np.random.default_rng(1).normal(size=shape), 3)
    tracemalloc.start()
    try:
        blob = pack_columns(X)
        packing = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        again, _ = unpack_columns(blob, 0, *shape)
        unpacking = tracemalloc.get_traced_memory()[1] - len(blob)
    finally:
        tracemalloc.stop()
    assert bits(again) == bits(X)
    assert packing < 5 * X.nbytes
    assert unpacking < 1.2 * X.nbytes


@pytest.mark.parametrize("form", [0x00, 0x30, 0x10 | MOST_DECIMALS + 1, 0x80, 0xF0])
def test_unknown_forms(form: int) -> None:
    with pytest.raises(ValueError, match=f"unknown form {form}"):
        unpack_columns(bytes([form]) + bytes(8 * FEW), 0, FEW, 1)


@pytest.mark.parametrize(("n", "d"), [(2**32 - 1, 2**32 - 1), (2**32 - 1, 1), (FEW, 2), (FEW, 1)])
def test_too_few_bytes_allocate_nothing(n: int, d: int) -> None:
    with pytest.raises(ValueError, match=f"{n} rows of {d} numbers"):
        unpack_columns(b"\x10" + bytes(FEW - 1), 0, n, d)


def test_a_column_that_ends_early() -> None:
    with pytest.raises(ValueError, match="smaller than requested"):
        unpack_columns(bytes([DOUBLES]) + bytes(8 * FEW - 1), 0, FEW, 1)
    with pytest.raises(ValueError, match="smaller than requested"):
        unpack_columns(bytes(79), 0, 1, 10)


@pytest.mark.parametrize("n", [1, 2, FEW - 1, FEW, FEW + 1])
def test_rows_and_a_matrix_have_the_same_bytes(n: int) -> None:
    """A repeated request is recognised, whether its rows came as JSON or as Arrow, and however blocks store them."""
    X = np.round(np.random.default_rng(n).normal(size=(n, 3)), 2)
    assert encode_inputs(X) == encode_inputs(list(X))
    assert plain_inputs(X) == plain_inputs(list(X)) == (3).to_bytes(4, "little") + bits(X)
    again = decode_inputs(encode_inputs(X), 0, n)
    assert bits(np.array(again)) == bits(X)
    assert (len(encode_inputs(X)) < X.nbytes / 2) == (n >= FEW)
