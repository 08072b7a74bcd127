"""Low-dimensional points in boxes, so that a nearest-neighbour search skips most points unseen.

The distance to a box is computed coordinate by coordinate, as distances to points are. Since rounding is monotone, it never
exceeds the distance to a point in the box, even in the last bit: no point as near as the nearest is ever ruled out.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from okl_core.types import F64

Indices = NDArray[np.intp]

BOX = 256
"""Points at which a box is split."""

BOXED = 2**17
"""Numbers in a work array of a block of inputs, tuned by measurement."""


@final
class Boxes:
    """Boxes of fewer than BOX points; a full box is split in two, which bounds the work of a round.

    The points of a box are sorted by age, oldest first. Unused slots hold a point at infinity.

    | array   | contents                                | shape              |
    |---------|-----------------------------------------|--------------------|
    | points  | coordinates                             | (boxes, d, width)  |
    | indices | indices of the points                   | (boxes, width)     |
    | low     | smallest coordinates of a box's points  | (d, boxes)         |
    | high    | largest coordinates of a box's points   | (d, boxes)         |
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
        """Return how many inputs to pass to `find` at once."""
        return max(1, BOXED // (len(self.low) * max(len(self.sizes), self.width)))

    def append(self, index: int, s: F64) -> None:
        """Put a point, shape (d,), into the nearest box, and split the box in two if it is then full."""
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
        """Find the nearest point to each column of Z, the oldest on a tie: indices and squared distances, shape (m,)."""
        bounds = self._bounds(Z)
        first = bounds.argmin(axis=1)
        nearest, squares = self._nearest_in(first, Z)
        rows, boxes = (bounds <= squares[:, None]).nonzero()
        is_other = boxes != first[rows]
        rows, boxes = rows[is_other], boxes[is_other]
        step = max(1, BOXED // (len(Z) * self.width))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            indices, others = self._nearest_in(boxes[part], Z[:, rows[part]])
            for j, i, square in zip(rows[part].tolist(), indices.tolist(), others.tolist(), strict=True):
                if (square, i) < (squares.item(j), nearest.item(j)):
                    nearest[j], squares[j] = i, square
        return nearest, squares

    def _bounds(self, Z: F64) -> F64:  # Z: (d, m)
        """Return the squared distance of every column to every box, 0 inside it: shape (m, boxes)."""
        columns, n = Z[:, :, None], len(self.sizes)
        gaps = np.maximum(self.low[:, None, :n] - columns, columns - self.high[:, None, :n])
        np.maximum(gaps, 0.0, out=gaps)
        gaps *= gaps
        return np.add.reduce(gaps, axis=0)

    def _nearest_in(self, boxes: Indices, Z: F64) -> tuple[Indices, F64]:  # boxes: (m,), Z: (d, m)
        """Find the nearest point to each column of Z in its box: indices and squared distances, shape (m,)."""
        squares = self.points[boxes]
        squares -= Z.T[:, :, None]
        squares *= squares
        totals = np.add.reduce(squares, axis=1)
        k, every = totals.argmin(axis=1), np.arange(len(boxes))
        return self.indices[boxes, k], totals[every, k]

    def _put(self, b: int, points: F64, indices: Indices) -> None:  # points: (d, k)
        """Store these points as box b, an existing box or the next new one."""
        if b == len(self.sizes):
            if b == len(self.points):
                self._reserve(len(points), 2 * b)
            self.sizes.append(0)
        k = self.sizes[b] = len(indices)
        self.points[b, :, :k], self.points[b, :, k:] = points, np.inf
        self.indices[b, :k] = indices
        self.low[:, b], self.high[:, b] = points.min(axis=1), points.max(axis=1)

    def _reserve(self, dim: int, capacity: int) -> None:
        """Make room for `capacity` boxes."""
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
    """Split `part` into two halves along the axis in which its points extend furthest."""
    selected = points.take(part, axis=1)
    axis = int((selected.max(axis=1) - selected.min(axis=1)).argmax())
    order = part[selected[axis].argpartition(len(part) // 2)]
    return [order[: len(part) // 2], order[len(part) // 2 :]]
