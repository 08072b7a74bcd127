"""Points of few dimensions in boxes: most boxes are ruled out before a point of theirs is looked at.

The distance to a box, computed coordinate by coordinate as distances to points are, is at most that to each of its points,
to the bit, since rounding is monotone. So no point is ruled out that is as near as the nearest.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from okl_core.types import F64

Indices = NDArray[np.intp]

BOX = 256
"""The largest number of points of a box."""

BOXED = 2**17
"""Numbers in a work array of a block of inputs, by measurement."""


@final
class Boxes:
    """Boxes of fewer than BOX points; a box that is full is cut in two, so that no round does more than that.

    Inside a box the oldest point comes first. Places without a point hold one at infinity.

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
        """How many inputs `find` should be asked about at once."""
        return max(1, BOXED // (len(self.low) * max(len(self.sizes), self.width)))

    def append(self, index: int, s: F64) -> None:
        """Put a point, shape (d,), into the nearest box, and cut that in two if it is full."""
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
        """The nearest point to each column of Z, of several the oldest: its index and squared distance, shape (m,)."""
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
        """The squared distance of every column to every box, 0 inside: shape (m, boxes)."""
        columns, n = Z[:, :, None], len(self.sizes)
        gaps = np.maximum(self.low[:, None, :n] - columns, columns - self.high[:, None, :n])
        np.maximum(gaps, 0.0, out=gaps)
        gaps *= gaps
        return np.add.reduce(gaps, axis=0)

    def _nearest_in(self, boxes: Indices, Z: F64) -> tuple[Indices, F64]:  # boxes: (m,), Z: (d, m)
        """The nearest point of one box to each column of Z: index and squared distance, shape (m,)."""
        squares = self.points[boxes]
        squares -= Z.T[:, :, None]
        squares *= squares
        totals = np.add.reduce(squares, axis=1)
        k, every = totals.argmin(axis=1), np.arange(len(boxes))
        return self.indices[boxes, k], totals[every, k]

    def _put(self, b: int, points: F64, indices: Indices) -> None:  # points: (d, k)
        """Make these the points of box b, which may be the next new one."""
        if b == len(self.sizes):
            if b == len(self.points):
                self._reserve(len(points), 2 * b)
            self.sizes.append(0)
        k = self.sizes[b] = len(indices)
        self.points[b, :, :k], self.points[b, :, k:] = points, np.inf
        self.indices[b, :k] = indices
        self.low[:, b], self.high[:, b] = points.min(axis=1), points.max(axis=1)

    def _reserve(self, dim: int, capacity: int) -> None:
        """Make room for so many boxes."""
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
    """`part` cut in two halves along the axis in which its points extend furthest."""
    chosen = points.take(part, axis=1)
    axis = int((chosen.max(axis=1) - chosen.min(axis=1)).argmax())
    order = part[chosen[axis].argpartition(len(part) // 2)]
    return [order[: len(part) // 2], order[len(part) // 2 :]]
