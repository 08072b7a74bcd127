r"""Exact nearest-neighbour search in a growing set of points; ties go to the oldest point.

The result is decided by `squared_distances` alone, whose bits do not depend on the code path. Everything else only rules
points out by lower bounds on that distance, so every path finds the same point:

- few numbers: nothing is ruled out.
- more numbers: the bound is |s|^2 - 2 <s, z> + |z|^2 from one matrix product, less the largest possible rounding error.
- many points of few dimensions: the bound is the distance to a box of points, see `linalg.boxes`.

Where boxes are used, a tree such as scipy's is hardly faster, and it must be rebuilt to add points.
"""

from __future__ import annotations

from typing import final

import numpy as np
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import StateFormatError
from okl_core.linalg.boxes import Boxes, Indices
from okl_core.linalg.growing_columns import GrowingColumns
from okl_core.types import F64

FARTHEST = 1e307
"""The largest |s|^2 of a point, and |z|^2 of an input, for which no squared distance overflows."""

FEW_NUMBERS = 5000
"""n d below which nothing is ruled out, tuned by measurement."""

BOX_DIM = 6
"""The largest d for boxes: beyond it, too many boxes are as near as the nearest point."""

BOXES_FROM = 4000
"""Points per dimension from which on boxes pay off, tuned by measurement."""

SCANNED = 2**19
"""Bounds computed at once in a scan, tuned by measurement."""

UNDERFLOW = 1e-300
"""An upper bound on what a squared distance can lose to underflow."""


def squared_distances(points: F64, z: F64) -> F64:  # points: (d, n), z: (d,) or (d, n)
    """Return |s - z|^2 for every column s of `points`, shape (n,), summing squares in the order of the coordinates.

    If z is a matrix, its columns are paired with those of `points`. The bits depend neither on n nor on the processor.
    """
    # numpy sums pairwise along a contiguous axis, such as that of a single column.
    squares = np.subtract(points, z[:, None] if z.ndim == 1 else z, order="C")
    squares *= squares
    return np.add.reduce(squares, axis=0) if squares.shape[1] > 1 else np.add.accumulate(squares, axis=0)[-1]


@final
class Nearest:
    """Points of R^d, oldest first, with squared norms of at most FARTHEST.

    Examples
    --------
    >>> points = Nearest(dim=1)
    >>> for s in (0.0, 2.0):
    ...     points.append(np.array([s]))
    >>> points.find(np.array([1.0]))
    (0, 1.0)
    """

    __slots__ = ("_boxes", "_rows", "_shrink", "dim")

    def __init__(self, dim: int) -> None:
        self.dim = dim
        # This takes off more than twice the rounding error of |s|^2 - 2 <s, z> + |z|^2, and of `squared_distances`.
        self._shrink = 1.0 - 8.0 * (dim + 4) * float(np.finfo(np.float64).eps)
        # One column per point: the coordinates, and below them |s|^2, shrunk.
        self._rows = GrowingColumns(dim + 1)
        # Not state: built when first needed, and no result depends on it.
        self._boxes: Boxes | None = None

    def __len__(self) -> int:
        return self._rows.view.shape[1]

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + (0 if self._boxes is None else self._boxes.nbytes)

    def append(self, s: F64) -> None:  # s: (d,)
        if self._boxes is not None:
            self._boxes.append(len(self), s)
        column = self._rows.append()
        column[:-1] = s
        column[-1] = self._shrink * ddot(s, s)

    def find(self, z: F64) -> tuple[int, float]:
        """Return the index of the point nearest to z, shape (d,), and its squared distance. There must be a point."""
        if (boxes := self._boxed()) is not None:
            nearest, squares = boxes.find(z[:, None])
            return nearest.item(), squares.item()
        rows = self._rows.view
        if rows.shape[1] * self.dim < FEW_NUMBERS:
            squares = squared_distances(rows[:-1], z)
            i = int(squares.argmin())
            return i, squares.item(i)
        query = np.empty(self.dim + 1)
        np.multiply(z, -2.0, out=query[:-1])
        query[-1] = 1.0
        return self._decide(query @ rows, z)

    def find_block(self, Z: F64) -> tuple[Indices, F64]:  # Z: (d, m)
        """Run `find` for every column of Z: indices and squared distances, shape (m,)."""
        m = Z.shape[1]
        nearest, squares = np.empty(m, dtype=np.intp), np.empty(m)
        boxes = self._boxed()
        step = max(1, SCANNED // len(self)) if boxes is None else boxes.room()
        for start in range(0, m, step):
            part = slice(start, start + step)
            nearest[part], squares[part] = (self._scan if boxes is None else boxes.find)(Z[:, part])
        return nearest, squares

    def _scan(self, Z: F64) -> tuple[Indices, F64]:  # Z: (d, m)
        """Run `find_block` by a matrix product."""
        rows = self._rows.view
        low = np.hstack((-2.0 * Z.T, np.ones((Z.shape[1], 1)))) @ rows
        nearest = low.argmin(axis=1)
        squares = squared_distances(rows[:-1, nearest], Z)
        limits = squares + UNDERFLOW - self._shrink * np.einsum("ij,ij->j", Z, Z)
        for j in np.flatnonzero(np.count_nonzero(low <= limits[:, None], axis=1) > 1).tolist():
            nearest[j], squares[j] = self._decide(low[j], Z[:, j])
        return nearest, squares

    def _decide(self, low: F64, z: F64) -> tuple[int, float]:
        """Run `find` for z, shape (d,), given lower bounds on |s - z|^2 - |z|^2 for every point s, shape (n,)."""
        points, i = self._rows.view[:-1], int(low.argmin())
        square = squared_distances(points[:, i : i + 1], z).item()
        near = (low <= square + UNDERFLOW - self._shrink * ddot(z, z)).nonzero()[0]
        if len(near) == 1:
            return i, square
        squares = squared_distances(points[:, near], z)
        k = int(squares.argmin())
        return near.item(k), squares.item(k)

    def _boxed(self) -> Boxes | None:
        """Return the boxes, built once there are enough points; None before."""
        rows = self._rows.view
        if self._boxes is None and self.dim <= BOX_DIM and rows.shape[1] >= BOXES_FROM * self.dim:
            self._boxes = Boxes(rows[:-1])
        return self._boxes

    def pack(self) -> F64:
        """Return a copy of the points, shape (n, d)."""
        return np.array(self._rows.view[:-1].T, order="C")

    @classmethod
    def unpack(cls, points: F64) -> Nearest:
        if points.ndim != 2:
            raise StateFormatError(f"points of shape {points.shape}")
        nearest = cls(points.shape[1])
        squares = nearest._shrink * np.einsum("ij,ij->i", points, points)
        nearest._rows = GrowingColumns.unpack(np.column_stack((points, squares)))
        return nearest
