"""Columns that grow by appending: what `linalg.growing` is for rows, where the arithmetic runs along the columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np

from okl_core.types import F64


@final
class GrowingColumns:
    """Columns of one length, appended in amortised O(1).

    `view`, shape (length, n), is what has been appended, without a copy: good until the next append.
    """

    __slots__ = ("_data", "view")

    def __init__(self, length: int, *, capacity: int = 16) -> None:
        self._data = np.empty((length, capacity))
        self.view: F64 = self._data[:, :0]

    def __len__(self) -> int:
        """n, the number of columns."""
        return self.view.shape[1]

    @property
    def nbytes(self) -> int:
        return self._data.nbytes

    def append(self) -> F64:
        """A new column, shape (length,), for the caller to fill."""
        n = self.view.shape[1]
        self._resize(n + 1)
        return self._data[:, n]

    def extend(self, columns: F64) -> None:  # columns: (length, k)
        n = self.view.shape[1]
        self._resize(n + columns.shape[1])
        self.view[:, n:] = columns

    def _resize(self, size: int) -> None:
        if size > self._data.shape[1]:
            n = self.view.shape[1]
            data = np.empty((len(self._data), max(size, 2 * n)))
            data[:, :n] = self.view
            self._data = data
        self.view = self._data[:, :size]

    def __deepcopy__(self, memo: object) -> GrowingColumns:
        # Field by field the view would be copied apart, and no longer be one of the data.
        columns = GrowingColumns(len(self._data), capacity=self._data.shape[1])
        columns.extend(self.view)
        return columns

    def __reduce__(self) -> tuple[Callable[[F64], GrowingColumns], tuple[F64]]:
        """The same of a pickle."""
        return GrowingColumns.unpack, (self.pack(),)

    def pack(self) -> F64:
        """The columns as rows, shape (n, length); a copy."""
        return np.array(self.view.T, order="C")

    @classmethod
    def unpack(cls, rows: F64) -> GrowingColumns:  # rows: (n, length)
        n, length = rows.shape
        columns = cls(length, capacity=max(16, n))
        columns.extend(rows.T)
        return columns
