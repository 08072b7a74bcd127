r"""Stored points, kept so that one matrix product gives every squared distance.

A point s is kept as the row [s - o, |s - o|^2, 1], with o an origin that the kernel may choose freely. Then

    c |s - x|^2 = [s - o, |s - o|^2, 1] . [-2c (x - o), c, c |x - o|^2].

Distances do not depend on o, and their rounding error grows with |x - o|^2: the first point is a good origin, since
features with a large offset (a time stamp, a price) would otherwise lose every digit of a small difference.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from okl_core.errors import StateFormatError
from okl_core.growing import GrowingArray
from okl_core.types import F64


class Points:
    """An ordered set of points in R^d, oldest first.

    Parameters
    ----------
    dim : int
        d >= 1.
    centred : bool
        Take the first point as the origin. Right for kernels of x - z, wrong for kernels of the inner product.
    """

    __slots__ = ("_rows", "centred", "dim", "origin")

    def __init__(self, dim: int, *, centred: bool, capacity: int = 16) -> None:
        self.dim = dim
        self.centred = centred
        self.origin: F64 = np.zeros(dim)
        self._rows = GrowingArray(dim + 2, capacity=capacity)

    @classmethod
    def of(cls, X: F64, *, centred: bool) -> Points:  # X: (n, d)
        points = cls(X.shape[1], centred=centred, capacity=max(1, len(X)))
        points.extend(X)
        return points

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def append(self, x: F64) -> None:
        if len(self._rows) == 0:
            self.extend(x[None, :])
        else:
            self._rows.append(1.0)
            self.replace(-1, x)

    def extend(self, X: F64) -> None:  # X: (n, d)
        if self.centred and len(self._rows) == 0 and len(X):
            self.origin = X[0].copy()
        rows = np.ones((len(X), self.dim + 2))
        heads = np.subtract(X, self.origin, out=rows[:, :-2])
        np.einsum("ij,ij->i", heads, heads, out=rows[:, -2])
        self._rows.extend(rows)

    def replace(self, i: int, x: F64) -> None:
        """Put x, shape (d,), in the place of point i."""
        row = self._rows.view[i]
        row[:-2] = head = x - self.origin
        row[-2] = head.dot(head)

    def repeat(self, i: int) -> None:
        """Append point i once more."""
        self._rows.append(self._rows.view[i])

    def truncate(self, size: int) -> None:
        """Keep the oldest `size` points."""
        self._rows.truncate(size)

    def select(self, order: NDArray[np.intp]) -> None:
        """Keep the points of these indices, in this order."""
        self._rows.select(order)

    def coordinates(self) -> F64:
        """The points themselves, shape (n, d); a copy."""
        return self._rows.view[:, :-2] + self.origin

    def products(self, x: F64) -> F64:
        """<s, x> for every point, shape (n,). Only for points that are not centred."""
        return self._rows.view[:, :-2] @ x

    def products_block(self, X: F64) -> F64:
        """<s_i, x_j>, shape (n, m), for X of shape (m, d). Only for points that are not centred."""
        return self._rows.view[:, :-2] @ X.T

    def scaled_distances(self, x: F64, c: float) -> F64:
        """c |s - x|^2 for every point, shape (n,), up to rounding (it may come out below 0 by that much)."""
        w = np.empty(self.dim + 2)
        head = np.subtract(x, self.origin, out=w[:-2])
        w[-1] = c * head.dot(head)
        w[-2] = c
        head *= -2.0 * c
        return self._rows.view.dot(w)

    def scaled_distances_block(self, X: F64, c: float) -> F64:
        """c |s_i - x_j|^2, shape (n, m), for X of shape (m, d)."""
        W = np.empty((len(X), self.dim + 2))
        heads = np.subtract(X, self.origin, out=W[:, :-2])
        np.einsum("ij,ij->i", heads, heads, out=W[:, -1])
        W[:, -1] *= c
        W[:, -2] = c
        heads *= -2.0 * c
        return self._rows.view @ W.T

    def pack(self) -> dict[str, F64]:
        return {
            "rows": self._rows.pack(),
            "origin": self.origin.copy(),
            "centred": np.array(float(self.centred)),
        }

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> Points:
        rows, origin = arrays["rows"], arrays["origin"]
        if rows.ndim != 2 or rows.shape[1] != len(origin) + 2:
            raise StateFormatError(f"points of shape {rows.shape} with an origin of shape {origin.shape}")
        points = cls(len(origin), centred=bool(arrays["centred"]), capacity=max(16, len(rows)))
        points.origin = origin.copy()
        points._rows.extend(rows)
        return points
