r"""The nearest of a growing set of points, exactly: of several at the same distance the oldest.

What decides is one squared distance, `squared_distances`, whose bits do not depend on how it came to be computed. The
rest only rules points out by lower bounds on it, so all ways lead to the same point:

- few numbers: nothing is ruled out.
- more: |s|^2 - 2 <s, z> + |z|^2 of one matrix product, less what rounding can have added to it.
- many points of few dimensions: points lie in boxes of at most BOX of them. The distance to a box, computed coordinate by
  coordinate as those of points are, is at most theirs, to the bit, since rounding is monotone. A box that is full is cut
  in two, so there is never more to do in a round than that.

A tree such as scipy's answers hardly faster where boxes are used, and must be built anew to take further points.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import StateFormatError
from okl_core.types import F64

Indices = NDArray[np.intp]

FARTHEST = 1e307
"""|s|^2 of a point at most, and |z|^2 of an input: then no squared distance overflows."""

FEW_NUMBERS = 5000
"""n d below which nothing is ruled out, by measurement."""

BOX_DIM = 6
"""Largest d for boxes: with more, too many are as near as the nearest point."""

BOXES_FROM = 4000
"""Points per dimension from which on boxes pay, by measurement."""

BOX = 256
"""Points of a box at most."""

SCANNED = 2**19
"""Bounds computed at once in a block that is scanned, by measurement."""

BOXED = 2**17
"""Numbers in a work array of a block that looks into boxes, by measurement."""

UNDERFLOW = 1e-300
"""More than underflow can have taken from a squared distance."""


def squared_distances(points: F64, z: F64) -> F64:  # points: (d, n), z: (d,) or (d, n)
    """|s - z|^2 of every column s of `points` and of z, shape (n,): squares summed in the order of the coordinates.

    The bits depend neither on n nor on the processor.
    """
    # Along an axis that is contiguous, as that of a single column is, numpy would sum in pairs.
    squares = np.subtract(points, z[:, None] if z.ndim == 1 else z, order="C")
    squares *= squares
    return np.add.reduce(squares, axis=0) if squares.shape[1] > 1 else np.add.accumulate(squares, axis=0)[-1]


@final
class Nearest:
    """Points of R^d, oldest first, none of them beyond FARTHEST.

    Examples
    --------
    >>> points = Nearest(dim=1)
    >>> for s in (0.0, 2.0):
    ...     points.append(np.array([s]))
    >>> points.find(np.array([1.0]))
    (0, 1.0)
    """

    __slots__ = ("_boxes", "_rows", "_shrink", "_size", "dim")

    def __init__(self, dim: int, *, capacity: int = 16) -> None:
        self.dim = dim
        # Rounding changes |s|^2 - 2 <s, z> + |z|^2 and `squared_distances` by less than half of what this takes off.
        self._shrink = 1.0 - 8.0 * (dim + 4) * float(np.finfo(np.float64).eps)
        # The coordinates, and in the last row |s|^2, shrunk.
        self._rows = np.empty((dim + 1, capacity))
        self._size = 0
        # Not state: made when first needed, and no answer depends on it.
        self._boxes: _Boxes | None = None

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + (0 if self._boxes is None else self._boxes.nbytes)

    def append(self, s: F64) -> None:
        n = self._size
        if n == self._rows.shape[1]:
            rows = np.empty((self.dim + 1, 2 * n))
            rows[:, :n] = self._rows
            self._rows = rows
        self._rows[:-1, n] = s
        self._rows[-1, n] = self._shrink * ddot(s, s)
        self._size += 1
        if self._boxes is not None:
            self._boxes.append(n, s)

    def find(self, z: F64) -> tuple[int, float]:
        """Index of the point nearest to z, shape (d,), and the squared distance. There must be a point."""
        if (boxes := self._boxed()) is not None:
            found, squares = boxes.find(z[:, None])
            return found.item(), squares.item()
        n = self._size
        if n * self.dim < FEW_NUMBERS:
            squares = squared_distances(self._rows[:-1, :n], z)
            i = int(squares.argmin())
            return i, squares.item(i)
        asked = np.empty(self.dim + 1)
        np.multiply(z, -2.0, out=asked[:-1])
        asked[-1] = 1.0
        return self._decide(asked @ self._rows[:, :n], z)

    def find_block(self, Z: F64) -> tuple[Indices, F64]:  # Z: (d, m)
        """`find` for every column of Z: indices and squared distances, shape (m,)."""
        m = Z.shape[1]
        found, squares = np.empty(m, dtype=np.intp), np.empty(m)
        boxes = self._boxed()
        step = max(1, SCANNED // self._size) if boxes is None else boxes.room()
        for start in range(0, m, step):
            part = slice(start, start + step)
            found[part], squares[part] = (self._scan if boxes is None else boxes.find)(Z[:, part])
        return found, squares

    def _scan(self, Z: F64) -> tuple[Indices, F64]:  # Z: (d, m)
        rows = self._rows[:, : self._size]
        low = np.hstack((-2.0 * Z.T, np.ones((Z.shape[1], 1)))) @ rows
        found = low.argmin(axis=1)
        squares = squared_distances(rows[:-1, found], Z)
        limits = squares + UNDERFLOW - self._shrink * np.einsum("ij,ij->j", Z, Z)
        for j in np.flatnonzero(np.count_nonzero(low <= limits[:, None], axis=1) > 1).tolist():
            found[j], squares[j] = self._decide(low[j], Z[:, j])
        return found, squares

    def _decide(self, low: F64, z: F64) -> tuple[int, float]:
        """The nearest point to z, shape (d,), by bounds below |s - z|^2 - |z|^2, shape (n,)."""
        i = int(low.argmin())
        square = squared_distances(self._rows[:-1, i : i + 1], z).item()
        near = (low <= square + UNDERFLOW - self._shrink * ddot(z, z)).nonzero()[0]
        if len(near) == 1:
            return i, square
        squares = squared_distances(self._rows[:-1, near], z)
        k = int(squares.argmin())
        return near.item(k), squares.item(k)

    def _boxed(self) -> _Boxes | None:
        if self._boxes is None and self.dim <= BOX_DIM and self._size >= BOXES_FROM * self.dim:
            self._boxes = _Boxes(self._rows[:-1, : self._size])
        return self._boxes

    def pack(self) -> F64:
        """The points, shape (n, d); a copy."""
        return np.array(self._rows[:-1, : self._size].T, order="C")

    @classmethod
    def unpack(cls, points: F64) -> Nearest:
        if points.ndim != 2:
            raise StateFormatError(f"points of shape {points.shape}")
        n, dim = points.shape
        nearest = cls(dim, capacity=max(16, n))
        nearest._rows[:-1, :n] = points.T
        nearest._rows[-1, :n] = nearest._shrink * np.einsum("ij,ij->i", points, points)
        nearest._size = n
        return nearest


@final
class _Boxes:
    """Points in boxes of at most `width`; inside a box oldest first, padded with points at infinity.

    | array   | what                                    | shape              |
    |---------|-----------------------------------------|--------------------|
    | points  | coordinates                             | (boxes, d, width)  |
    | indices | which points they are                   | (boxes, width)     |
    | low     | smallest coordinates of a box's points  | (d, boxes)         |
    | high    | largest                                 | (d, boxes)         |
    """

    __slots__ = ("high", "indices", "low", "points", "sizes", "width")

    def __init__(self, points: F64) -> None:  # points: (d, n)
        self.width = BOX
        self.sizes: list[int] = []
        self._reserve(len(points), 4)
        parts = [np.arange(points.shape[1])]
        while parts:
            part = parts.pop()
            if len(part) < self.width:
                part.sort()
                self._put(len(self.sizes), points.take(part, axis=1), part)
            else:
                parts += _halves(points, part)

    @property
    def nbytes(self) -> int:
        return self.points.nbytes + self.indices.nbytes + self.low.nbytes + self.high.nbytes

    def room(self) -> int:
        """Inputs that `find` should be asked about at once."""
        return max(1, BOXED // (len(self.low) * max(len(self.sizes), self.width)))

    def append(self, index: int, s: F64) -> None:
        """Put a point, shape (d,), into the box that is nearest, and cut that in two if it is full."""
        b = int(self._bounds(s[:, None]).argmin())
        k = self.sizes[b]
        self.points[b, :, k] = s
        self.indices[b, k] = index
        self.low[:, b] = np.minimum(self.low[:, b], s)
        self.high[:, b] = np.maximum(self.high[:, b], s)
        self.sizes[b] += 1
        if k + 1 == self.width:
            points, indices = self.points[b].copy(), self.indices[b].copy()
            for box, half in zip((b, len(self.sizes)), _halves(points, np.arange(self.width)), strict=True):
                half.sort()
                self._put(box, points.take(half, axis=1), indices[half])

    def find(self, Z: F64) -> tuple[Indices, F64]:  # Z: (d, m)
        """Of every column the nearest point's index and squared distance, shape (m,)."""
        bounds = self._bounds(Z)
        first = bounds.argmin(axis=1)
        found, squares = self._nearest_in(first, Z)
        rows, boxes = (bounds <= squares[:, None]).nonzero()
        is_other = boxes != first[rows]
        rows, boxes = rows[is_other], boxes[is_other]
        step = max(1, BOXED // (len(Z) * self.width))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            indices, others = self._nearest_in(boxes[part], Z[:, rows[part]])
            for j, i, square in zip(rows[part].tolist(), indices.tolist(), others.tolist(), strict=True):
                if (square, i) < (squares.item(j), found.item(j)):
                    found[j], squares[j] = i, square
        return found, squares

    def _bounds(self, Z: F64) -> F64:  # Z: (d, m)
        """Squared distance of every column to every box, shape (m, boxes); 0 inside."""
        columns, n = Z[:, :, None], len(self.sizes)
        gaps = np.maximum(self.low[:, None, :n] - columns, columns - self.high[:, None, :n])
        np.maximum(gaps, 0.0, out=gaps)
        gaps *= gaps
        return np.add.reduce(gaps, axis=0)

    def _nearest_in(self, boxes: Indices, Z: F64) -> tuple[Indices, F64]:  # boxes: (m,), Z: (d, m)
        """The nearest point of one box for every column of Z: index and squared distance, shape (m,)."""
        squares = self.points[boxes]
        squares -= Z.T[:, :, None]
        squares *= squares
        totals = np.add.reduce(squares, axis=1)
        k, every = totals.argmin(axis=1), np.arange(len(boxes))
        return self.indices[boxes, k], totals[every, k]

    def _put(self, b: int, points: F64, indices: Indices) -> None:  # points: (d, k)
        """Make these the points of box b, a new one if there is none of this number."""
        if b == len(self.sizes):
            if b == len(self.points):
                self._reserve(len(points), 2 * b)
            self.sizes.append(0)
        k = self.sizes[b] = len(indices)
        self.points[b, :, :k], self.points[b, :, k:] = points, np.inf
        self.indices[b, :k] = indices
        self.low[:, b], self.high[:, b] = points.min(axis=1), points.max(axis=1)

    def _reserve(self, dim: int, capacity: int) -> None:
        n = len(self.sizes)
        grown = (
            np.empty((capacity, dim, self.width)),
            np.zeros((capacity, self.width), dtype=np.intp),
            np.empty((dim, capacity)),
            np.empty((dim, capacity)),
        )
        if n:
            grown[0][:n], grown[1][:n] = self.points, self.indices
            grown[2][:, :n], grown[3][:, :n] = self.low, self.high
        self.points, self.indices, self.low, self.high = grown


def _halves(points: F64, part: Indices) -> list[Indices]:  # points: (d, n), part: (k,)
    """`part` in two along the axis in which these points reach furthest."""
    chosen = points.take(part, axis=1)
    axis = int((chosen.max(axis=1) - chosen.min(axis=1)).argmax())
    order = part[chosen[axis].argpartition(len(part) // 2)]
    return [order[: len(part) // 2], order[len(part) // 2 :]]
