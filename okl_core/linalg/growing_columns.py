"""Columns that grow by appending: `linalg.growing` for arithmetic that runs across points, coordinate by coordinate."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np

from okl_core.types import F64


@final
class GrowingColumns:
    """Columns of one length, appended in amortised O(1).

    `view`, shape (length, n), is the filled part, not a copy, valid until the next append.
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
        """Append a column, shape (length,), and return it for the caller to fill."""
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
        # The default copies field by field: the copied view would no longer share memory with the data.
        columns = GrowingColumns(len(self._data), capacity=self._data.shape[1])
        columns.extend(self.view)
        return columns

    def __reduce__(self) -> tuple[Callable[[F64], GrowingColumns], tuple[F64]]:
        """Rebuild the view when unpickling, for the same reason."""
        return GrowingColumns.unpack, (self.pack(),)

    def pack(self) -> F64:
        """Return a copy of the columns as rows, shape (n, length)."""
        return np.array(self.view.T, order="C")

    @classmethod
    def unpack(cls, rows: F64) -> GrowingColumns:  # rows: (n, length)
        n, length = rows.shape
        columns = cls(length, capacity=max(16, n))
        columns.extend(rows.T)
        return columns
