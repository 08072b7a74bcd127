"""Arrays that grow by appending."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from okl_core.linalg.precision import DOUBLE, FloatType
from okl_core.types import F64, Stored


class GrowingArray:
    """Rows of one shape, appended in amortised O(1). `view` is the filled part, not a copy, valid until the next append.

    The annotations say float64, the usual case; with `floats` SINGLE the data are float32.
    """

    __slots__ = ("_data", "_size", "view")

    def __init__(self, *row_shape: int, capacity: int = 16, floats: FloatType = DOUBLE) -> None:
        self._data: F64 = np.empty((capacity, *row_shape), dtype=floats.dtype)
        self._resize(0)

    def __len__(self) -> int:
        return self._size

    def _resize(self, size: int) -> None:
        # The view is kept because it is read far more often than it changes.
        self._size = size
        self.view: F64 = self._data[:size]

    @property
    def nbytes(self) -> int:
        return self._data.nbytes

    def append(self, row: F64 | float) -> None:
        if self._size == len(self._data):
            self._reserve(2 * self._size)
        self._data[self._size] = row
        self._resize(self._size + 1)

    def extend(self, rows: Stored) -> None:
        size = self._size + len(rows)
        if size > len(self._data):
            self._reserve(max(size, 2 * self._size))
        self._data[self._size : size] = rows
        self._resize(size)

    def truncate(self, size: int) -> None:
        """Keep the oldest `size` rows."""
        self._resize(min(size, self._size))

    def select(self, order: NDArray[np.intp]) -> None:
        """Keep the rows with these indices, at most as many as now, in this order."""
        self._data[: len(order)] = self._data[order]
        self._resize(len(order))

    def _reserve(self, capacity: int) -> None:
        data = np.empty((capacity, *self._data.shape[1:]), dtype=self._data.dtype)
        data[: self._size] = self.view
        self._data = data

    def __deepcopy__(self, memo: object) -> GrowingArray:
        # The default copies field by field: the copied view would no longer share memory with the data.
        array = GrowingArray(*self._data.shape[1:], capacity=len(self._data), floats=FloatType.in_which(self._data))
        array.extend(self.view)
        return array

    def __reduce__(self) -> tuple[Callable[[Stored], GrowingArray], tuple[F64]]:
        """Rebuild the view when unpickling, for the same reason."""
        return GrowingArray.unpack, (self.view,)

    def pack(self) -> F64:
        return self.view.copy()

    @classmethod
    def unpack(cls, rows: Stored) -> GrowingArray:
        array = cls(*rows.shape[1:], capacity=max(16, len(rows)), floats=FloatType.in_which(rows))
        array.extend(rows)
        return array
