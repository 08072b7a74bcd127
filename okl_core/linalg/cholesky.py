"""An append-only Cholesky factor, whose full panels are never copied as it grows.

The factor is kept in panels of PANEL rows. A panel holds its rows left of the diagonal tile as one dense block, and the
tile separately, packed. A solve is a matrix-vector product and a triangular solve per panel. It reads each entry once, at
memory speed; with many right-hand sides it is all level-3 BLAS.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from okl_core.errors import NotPositiveDefiniteError, StateFormatError
from okl_core.linalg.precision import DOUBLE, FloatType
from okl_core.types import F64, Stored

PANEL = 256
"""Rows per panel: enough to hide the call overhead, few enough to unpack a tile for many right-hand sides."""
ROOM = 32
"""Rows by which the last panel grows."""
POWER_STEPS = 4
"""Steps of the power method in `inverse_norm`: enough to tell the order of magnitude."""
FIRST_ROOM = 8
"""Rows by which the first panel grows: its rows are short, and a worker may hold thousands of such small factors."""

N = TypeVar("N", int, NDArray[np.int64])


class Factor:
    """A lower Cholesky factor L, n x n, in double or single precision, that grows by rows. `copy.deepcopy` takes O(n).

    Examples
    --------
    >>> L = Factor()
    >>> L.append(np.empty(0), 2.0)
    >>> L.append(np.array([1.0]), 3.0)
    >>> L.solve(np.array([2.0, 4.0]))
    array([1., 1.])
    """

    __slots__ = ("_left", "_size", "_tiles", "floats")

    def __init__(self, floats: FloatType = DOUBLE) -> None:
        self.floats = floats
        self._left: list[Stored] = []
        self._tiles: list[Stored] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        return sum(block.nbytes for block in self._left) + sum(tile.nbytes for tile in self._tiles)

    def append(self, row: F64, diagonal: float) -> None:
        """Append the row [row, diagonal], row of shape (n,). Raise NotPositiveDefiniteError unless diagonal > 0."""
        if not diagonal > 0.0:
            raise NotPositiveDefiniteError(
                f"the factor's diagonal entry {self._size + 1} would be {diagonal}; raise the regularization"
            )
        panel, i = divmod(self._size, PANEL)
        start = panel * PANEL
        if i == 0:
            self._left.append(np.empty((0, start), dtype=self.floats.dtype))
            self._tiles.append(np.empty(0, dtype=self.floats.dtype))
        if i == len(self._left[panel]):
            room = _room(i + 1, start) - i
            self._left[panel] = self._longer(self._left[panel], room)
            self._tiles[panel] = self._longer(self._tiles[panel], _packed(i + room) - _packed(i))
        self._left[panel][i] = row[:start]
        first, last = _packed(i), _packed(i + 1) - 1
        self._tiles[panel][first:last] = row[start:]
        self._tiles[panel][last] = diagonal
        self._size += 1

    def _longer(self, rows: Stored, count: int) -> Stored:
        return np.concatenate((rows, np.empty((count, *rows.shape[1:]), dtype=self.floats.dtype)))

    def truncate(self, size: int) -> None:
        """Keep the oldest `size` rows."""
        panels = -(-size // PANEL)
        del self._left[panels:], self._tiles[panels:]
        if size % PANEL:
            self._own_last()
        self._size = size

    def __deepcopy__(self, memo: object) -> Factor:
        """O(n): the copy shares the full panels, which are never written again."""
        factor = Factor(self.floats)
        factor._left, factor._tiles, factor._size = self._left.copy(), self._tiles.copy(), self._size
        if self._size % PANEL:
            factor._own_last()
        return factor

    def _own_last(self) -> None:
        """Copy the last panel, which may be shared with a copy of the factor."""
        self._left[-1], self._tiles[-1] = self._left[-1].copy(), self._tiles[-1].copy()

    def solve(self, b: F64) -> F64:
        """Return L^{-1} b, for b of shape (n,) or (n, k)."""
        return self._solve_columns(b) if b.ndim == 2 else self._solve_vector(b)

    def _solve_vector(self, b: F64) -> F64:
        z = self.floats.rounded(b)
        for panel, (start, rows) in enumerate(self._panels()):
            part = z[start : start + rows]
            if panel:
                part -= self._left[panel][:rows] @ z[:start]
            # Packed rows of a lower triangle are packed columns of its transpose, the upper triangle that BLAS expects.
            self.floats.tpsv(rows, self._tiles[panel], part, lower=0, trans=1, overwrite_x=1)
        return self.floats.widened(z)

    def _solve_columns(self, b: F64) -> F64:
        z = self.floats.rounded(b)
        for panel, (start, rows) in enumerate(self._panels()):
            part = z[start : start + rows]
            if panel:
                part -= self._left[panel][:rows] @ z[:start]
            tile, _ = self.floats.tpttr(rows, self._tiles[panel][: _packed(rows)], uplo="U")
            # Z = L^{-1} B is solved as Z^T = B^T L^{-T}, since the transposes are Fortran-ordered views.
            self.floats.trsm(1.0, tile, part.T, side=1, lower=0, overwrite_b=1)
        return self.floats.widened(z)

    def solve_transposed(self, b: F64) -> F64:
        """Return L^{-T} b, shape (n,)."""
        z = self.floats.rounded(b)
        for panel, (start, rows) in reversed(list(enumerate(self._panels()))):
            part = z[start : start + rows]
            self.floats.tpsv(rows, self._tiles[panel], part, lower=0, trans=0, overwrite_x=1)
            if panel:
                z[:start] -= part @ self._left[panel][:rows]
        return self.floats.widened(z)

    def diagonal(self) -> F64:
        """Return the diagonal of L, shape (n,)."""
        ends = _packed(np.arange(1, PANEL + 1)) - 1
        entries = [np.empty(0), *(self._tiles[i][ends[:n]] for i, (_, n) in enumerate(self._panels()))]
        return np.concatenate(entries, dtype=np.float64)

    def inverse_norm(self, scales: F64) -> float:
        """Return an estimate from below of |S (L L^T)^{-1} S|, for S = diag(scales), shape (n,): O(n^2).

        At least the largest (scale / diagonal entry)^2, which may be far below the norm: small entries multiply.
        """
        if not scales.any():
            return 0.0
        z, norm = np.zeros(len(self)), 1.0
        z[np.argmax(scales / self.diagonal())] = 1.0
        for _ in range(POWER_STEPS):
            z = scales * self.solve_transposed(self.solve(scales * (z / norm)))
            norm = float(np.linalg.norm(z))
        return norm

    def pack(self) -> Stored:
        """Return the rows of L, concatenated, shape (n (n + 1) / 2,)."""
        packed = np.empty(_packed(self._size), dtype=self.floats.dtype)
        position = 0
        for n in range(self._size):
            panel, i = divmod(n, PANEL)
            start = panel * PANEL
            packed[position : position + start] = self._left[panel][i]
            packed[position + start : position + n + 1] = self._tiles[panel][_packed(i) : _packed(i + 1)]
            position += n + 1
        return packed

    def _panels(self) -> list[tuple[int, int]]:
        """Return the first row and the number of rows of each panel."""
        return [(start, min(PANEL, self._size - start)) for start in range(0, self._size, PANEL)]

    @classmethod
    def unpack(cls, packed: Stored) -> Factor:
        factor = cls(FloatType.in_which(packed))
        n = int((np.sqrt(8.0 * len(packed) + 1.0) - 1.0) / 2.0 + 0.5)
        if _packed(n) != len(packed):
            raise StateFormatError(f"{len(packed)} numbers are not a packed triangle")
        if not (packed[_packed(np.arange(1, n + 1)) - 1] > 0.0).all():
            raise StateFormatError("a factor's diagonal is not positive")
        for start in range(0, n, PANEL):
            rows = min(PANEL, n - start)
            room = _room(rows, start)
            left = np.empty((room, start), dtype=factor.floats.dtype)
            tile = np.empty(_packed(room), dtype=factor.floats.dtype)
            for i in range(rows if start else 0):
                row = packed[_packed(start + i) : _packed(start + i + 1)]
                left[i], tile[_packed(i) : _packed(i + 1)] = row[:start], row[start:]
            if start == 0:
                tile[: _packed(rows)] = packed[: _packed(rows)]
            factor._left.append(left)
            factor._tiles.append(tile)
        factor._size = n
        return factor


def _packed(n: N) -> N:
    """Return how many numbers the first n rows of a triangle hold."""
    return n * (n + 1) // 2


def _room(rows: int, start: int) -> int:
    """Return how many rows to allocate for a panel that holds `rows`."""
    step = ROOM if start else FIRST_ROOM
    return -(-rows // step) * step
