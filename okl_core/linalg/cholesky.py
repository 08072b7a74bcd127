"""The append-only Cholesky factor. Nothing is copied in a round.

The factor is kept in panels of PANEL rows. A panel holds its rows left of the diagonal as one dense block, and its
diagonal tile apart, padded with the identity. A solve is then a matrix-vector product and a small triangular solve per
panel: it reads each entry once, at the speed of the memory, and with many right-hand sides it is all level-3 BLAS.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import dtrsm, dtrsv  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import NotPositiveDefiniteError, StateFormatError
from okl_core.types import F64

PANEL = 64
"""Rows per panel: large enough that the calls do not count, small enough that the padding does not."""


class Factor:
    """A lower Cholesky factor L, n x n, that grows by rows. `copy.deepcopy` of one takes O(n).

    Examples
    --------
    >>> L = Factor()
    >>> L.append(np.empty(0), 2.0)
    >>> L.append(np.array([1.0]), 3.0)
    >>> L.solve(np.array([2.0, 4.0]))
    array([1., 1.])
    """

    __slots__ = ("_left", "_size", "_tiles")

    def __init__(self) -> None:
        self._left: list[F64] = []
        self._tiles: list[F64] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        return sum(block.nbytes for block in self._left) + sum(tile.nbytes for tile in self._tiles)

    def append(self, row: F64, diagonal: float) -> None:
        """Add the row [row, diagonal]: row of shape (n,), diagonal > 0. Raises NotPositiveDefiniteError."""
        if not diagonal > 0.0:
            raise NotPositiveDefiniteError(
                f"the factor's diagonal entry {self._size + 1} would be {diagonal}; raise the regularization"
            )
        panel, i = divmod(self._size, PANEL)
        start = panel * PANEL
        if i == 0:
            self._left.append(np.zeros((PANEL, start)))
            self._tiles.append(np.eye(PANEL))
        self._left[panel][i] = row[:start]
        tile = self._tiles[panel]
        tile[i, :i] = row[start:]
        tile[i, i] = diagonal
        self._size += 1

    def truncate(self, size: int) -> None:
        """Keep the oldest `size` rows."""
        panels = -(-size // PANEL)
        del self._left[panels:], self._tiles[panels:]
        if size % PANEL:
            self._own_last()
            # The padding of the last tile is the identity.
            self._tiles[-1][size % PANEL :] = np.eye(PANEL)[size % PANEL :]
        self._size = size

    def __deepcopy__(self, memo: object) -> Factor:
        """O(n): a panel that is full is written to no more, and both have it."""
        factor = Factor()
        factor._left, factor._tiles, factor._size = self._left.copy(), self._tiles.copy(), self._size
        if self._size % PANEL:
            factor._own_last()
        return factor

    def _own_last(self) -> None:
        """Copy the last panel, which a copy of the factor may have too."""
        self._left[-1], self._tiles[-1] = self._left[-1].copy(), self._tiles[-1].copy()

    def solve(self, b: F64) -> F64:
        """L^{-1} b, for b of shape (n,) or (n, k)."""
        return self._solve_columns(b) if b.ndim == 2 else self._solve_vector(b)

    def _solve_vector(self, b: F64) -> F64:
        z = np.zeros(len(self._tiles) * PANEL)
        z[: self._size] = b
        for panel, tile in enumerate(self._tiles):
            start = panel * PANEL
            part = z[start : start + PANEL]
            if panel:
                part -= self._left[panel] @ z[:start]
            # A C-ordered lower tile is, transposed, the Fortran-ordered upper one that BLAS reads without a copy.
            dtrsv(tile.T, part, lower=0, trans=1, overwrite_x=1)
        return z[: self._size]

    def _solve_columns(self, b: F64) -> F64:
        z = np.zeros((len(self._tiles) * PANEL, b.shape[1]))
        z[: self._size] = b
        for panel, tile in enumerate(self._tiles):
            start = panel * PANEL
            part = z[start : start + PANEL]
            if panel:
                part -= self._left[panel] @ z[:start]
            # Z = L^{-1} B is solved as Z^T = B^T L^{-T}, since the transposes are Fortran-ordered views.
            dtrsm(1.0, tile.T, part.T, side=1, lower=0, overwrite_b=1)
        return z[: self._size]

    def solve_transposed(self, b: F64) -> F64:
        """L^{-T} b, shape (n,)."""
        z = np.zeros(len(self._tiles) * PANEL)
        z[: self._size] = b
        for panel in reversed(range(len(self._tiles))):
            start = panel * PANEL
            part = z[start : start + PANEL]
            dtrsv(self._tiles[panel].T, part, lower=0, trans=0, overwrite_x=1)
            if panel:
                z[:start] -= part @ self._left[panel]
        return z[: self._size]

    def diagonal(self) -> F64:
        """That of L, shape (n,)."""
        return np.concatenate([np.empty(0), *(tile.diagonal() for tile in self._tiles)])[: self._size]

    def dense(self) -> F64:
        """L as a full (n, n) array, for tests and diagnostics."""
        L = np.zeros((self._size, self._size))
        L[np.tril_indices(self._size)] = self.pack()
        return L

    def pack(self) -> F64:
        """The rows of L one after the other, shape (n (n + 1) / 2,)."""
        packed = np.empty(self._size * (self._size + 1) // 2)
        position = 0
        for n in range(self._size):
            panel, i = divmod(n, PANEL)
            start = panel * PANEL
            packed[position : position + start] = self._left[panel][i]
            packed[position + start : position + n + 1] = self._tiles[panel][i, : i + 1]
            position += n + 1
        return packed

    @classmethod
    def unpack(cls, packed: F64) -> Factor:
        factor = cls()
        n = int((np.sqrt(8.0 * len(packed) + 1.0) - 1.0) / 2.0 + 0.5)
        if n * (n + 1) // 2 != len(packed):
            raise StateFormatError(f"{len(packed)} numbers are not a packed triangle")
        position = 0
        for i in range(n):
            factor.append(packed[position : position + i], float(packed[position + i]))
            position += i + 1
        return factor
