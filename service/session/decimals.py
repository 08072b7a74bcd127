"""Columns of decimals in fewer bytes, read back bit for bit.

A number that was written with k decimals is the double nearest to i / 10^k for an integer i. Below 2^53 an integer and a
power of ten are exact doubles, and IEEE division rounds to the nearest; so i and k give the same double again. A column of
prices, readings, counts or labels therefore fits into integers of 1, 2 or 4 bytes. A column that does not stays as it is.

    columns  u8[d] forms, then each column in its form; of fewer than FEW rows f64[n d], without forms

A form is the width of the integers in its upper four bits and k in its lower ones, or DOUBLES.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from okl_core.types import F64

FEW: Final = 32
"""Of fewer rows, integers in place of doubles would save less than they cost."""

MOST_DECIMALS: Final = 8
SAMPLE: Final = 32
"""About the number of rows that show which columns to try: one without a short decimal form costs almost nothing."""

WIDTHS: Final = (1, 2, 4)
DOUBLES: Final = 0xFF

TOGETHER: Final = 1 << 16
"""About the number of values that are tried at once, which bounds the memory that trying takes."""

_SCALES: Final = np.array([float(10**k) for k in range(MOST_DECIMALS + 1)])
_LARGEST: Final = [float(1 << (8 * width - 1)) for width in WIDTHS]


def pack_columns(X: F64) -> bytes:
    """The bytes of a matrix of shape (n, d)."""
    if len(X) < FEW:
        return X.tobytes()
    forms: list[NDArray[np.uint8]] = []
    parts: list[NDArray[np.generic]] = []
    step = max(1, TOGETHER // len(X))
    for start in range(0, X.shape[1], step):
        some_forms, some_parts = _packed(np.ascontiguousarray(X[:, start : start + step].T))
        forms.append(some_forms)
        parts += some_parts
    return b"".join([part.data for part in (*forms, *parts)])


def unpack_columns(blob: bytes, start: int, n: int, d: int) -> tuple[F64, int]:
    """The matrix of shape (n, d) whose bytes begin at `start`, and where they end. Raises ValueError."""
    if n < FEW:
        rows = np.frombuffer(blob, np.float64, count=n * d, offset=start).reshape(n, d)
        return rows, start + rows.nbytes
    forms, start = blob[start : start + d], start + d
    if n * d > len(blob) - start:
        raise ValueError(f"{n} rows of {d} numbers in {len(blob) - start} bytes")
    X = np.empty((n, d))
    for j, form in enumerate(forms):
        if form == DOUBLES:
            stored = np.frombuffer(blob, np.float64, count=n, offset=start)
            X[:, j] = stored
        else:
            width, decimals = divmod(form, 16)
            if width not in WIDTHS or decimals > MOST_DECIMALS:
                raise ValueError(f"a column has the unknown form {form}")
            stored = np.frombuffer(blob, f"<i{width}", count=n, offset=start)
            np.divide(stored, _SCALES[decimals], out=X[:, j])
        start += stored.nbytes
    return X, start


def _packed(columns: F64) -> tuple[NDArray[np.uint8], list[NDArray[np.generic]]]:
    """The forms of some columns, shape (d, n), and each column in its form."""
    forms = np.full(len(columns), DOUBLES, dtype=np.uint8)
    parts: list[NDArray[np.generic]] = list(columns)
    decimals = _fewest_decimals(columns[:, :: max(1, columns.shape[1] // SAMPLE)])
    while len(tried := np.flatnonzero(decimals <= MOST_DECIMALS)):
        integers, is_same = _as_integers(columns if len(tried) == len(columns) else columns[tried], decimals[tried])
        widths = np.searchsorted(_LARGEST, np.maximum(integers.max(axis=1), -integers.min(axis=1)), side="right")
        is_short = widths < len(WIDTHS)
        for j in np.flatnonzero(is_same & is_short).tolist():
            width = WIDTHS[widths[j]]
            forms[tried[j]] = width << 4 | decimals[tried[j]]
            parts[tried[j]] = integers[j].astype(f"<i{width}")
        # The sample may have missed the rows with the most decimals; more of them only make the integers larger.
        decimals[tried] = np.where(is_same | ~is_short, MOST_DECIMALS, decimals[tried]) + 1
    return forms, parts


def _fewest_decimals(columns: F64) -> NDArray[np.intp]:
    """With how many decimals each column can be written, shape (d,); MOST_DECIMALS + 1 if with none that are tried."""
    _, is_same = _as_integers(columns, np.arange(MOST_DECIMALS + 1)[:, np.newaxis])
    return np.where(is_same.any(axis=0), is_same.argmax(axis=0), MOST_DECIMALS + 1)


def _as_integers(columns: F64, decimals: NDArray[np.intp]) -> tuple[F64, NDArray[np.bool_]]:
    """The integers of columns with these decimals, and whether all of a column's give the same doubles again."""
    scales = _SCALES[decimals][..., np.newaxis]
    with np.errstate(over="ignore", invalid="ignore"):
        integers = columns * scales
        np.rint(integers, out=integers)
        again = integers / scales
        # Zero has a sign that an integer has not, so bits are compared.
        again += 0.0
    return integers, (again.view(np.int64) == columns.view(np.int64)).all(axis=-1)
