r"""Stored points, kept so that one matrix product gives every squared distance.

A point s is kept as the row [h, -|h|^2 / 2, 1] with h = root (s - o) / unit. The kernel chooses the origin o, the unit of
length and the root of a metric, if any. With g = root (x - o) / unit,

    -|s - x|^2 / (2 unit^2) = [h, -|h|^2 / 2, 1] . [g, 1, -|g|^2 / 2],

so the query for an input x is its own row with the last two entries exchanged.

Distances do not depend on o, but their rounding error grows with |x - o|^2. The first point is a good origin: features with
a large offset (a time stamp, a price) would otherwise lose every digit of a small difference. But the first point may be
an outlier, and outliers may follow. So an origin has no coordinates beyond FARTHEST, which would round nearer inputs to a
coarse grid, and the distance between two points that are both WIDE of the origin is computed from their difference.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import StateFormatError
from okl_core.linalg.growing import GrowingArray
from okl_core.linalg.guards import require_single
from okl_core.linalg.precision import DOUBLE, FloatType
from okl_core.types import F64, Stored

FARTHEST = 2.0**32
"""Largest coordinate of an origin, in units of length: inputs are then rounded to at most 2^-21 units. Time stamps in
seconds are below it, nonsense values mostly above."""

WIDE, SINGLE_WIDE = -1e4, -1e2
"""-|h|^2 / 2 below which a product no longer gives the distance between two such points to within 1e-11 unit^2 (single
precision: 1e-4 unit^2)."""

LOWEST, SINGLE_LOWEST = -1e300, -1e30
"""Lower bound of exponents: exp of it is 0 anyway, and results computed from it stay finite."""

SINGLE_FARTHEST = 1e15
"""Largest coordinate in single precision, in units of length, where its square is finite; coordinates beyond are clipped."""

IN_METRIC = 2.0
"""Value of `centred` in packed points that have a root."""


def origin_from(x: F64, unit: float | F64) -> F64:
    """Return the origin for a first point x, shape (d,): x, with coordinates beyond FARTHEST units of length set to 0."""
    return np.where(np.abs(x) <= FARTHEST * unit, x, 0.0)


class Points:
    """An ordered set of points in R^d, oldest first.

    Parameters
    ----------
    dim : int
        d >= 1.
    centred : bool
        Take the first point as the origin, as far as FARTHEST allows. Right for kernels of x - z, wrong for kernels of
        the inner product.
    unit : float
        Unit of length for distances; 1 for kernels of the inner product.
    root : ndarray, shape (d, d), optional
        Symmetric, positive definite: distances are |root (s - x)|. Without it they are Euclidean.
    floats : FloatType
        Precision of the rows. Results are float64.
    """

    __slots__ = ("_rows", "centred", "dim", "floats", "origin", "root", "unit")

    def __init__(
        self,
        dim: int,
        *,
        centred: bool,
        unit: float = 1.0,
        root: F64 | None = None,
        capacity: int = 16,
        floats: FloatType = DOUBLE,
    ) -> None:
        self.dim = dim
        self.centred = centred
        self.origin: F64 = np.zeros(dim)
        # numpy takes an array as an operand a third of a microsecond faster than a Python number.
        self.unit: F64 = np.array(unit)
        self.root = root
        self.floats = floats
        self._rows = GrowingArray(dim + 2, capacity=capacity, floats=floats)

    @classmethod
    def of(cls, X: F64, *, centred: bool, unit: float = 1.0, root: F64 | None = None) -> Points:  # X: (n, d)
        points = cls(X.shape[1], centred=centred, unit=unit, root=root, capacity=max(1, len(X)))
        points.extend(X)
        return points

    def alike(self, X: F64) -> Points:  # X: (n, d)
        """Return points X with the origin, metric and precision of this set, so that they are rounded like its points."""
        unit, capacity = float(self.unit), max(1, len(X))
        points = Points(
            self.dim, centred=self.centred, unit=unit, root=self.root, capacity=capacity, floats=self.floats
        )
        if len(self._rows):
            points.origin = self.origin
            points._rows.extend(points.encoded_block(X))
        else:
            points.extend(X)
        return points

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    @property
    def coarseness(self) -> float:
        """1 + |root o| / unit: the relative rounding error of an input, in units of length; large if o is an outlier."""
        origin = self.origin if self.root is None else self.root @ self.origin
        return 1.0 + float(np.linalg.norm(origin)) / float(self.unit)

    @property
    def _wide(self) -> float:
        return WIDE if self.floats is DOUBLE else SINGLE_WIDE

    def append(self, x: F64) -> None:
        if len(self._rows) == 0:
            self.extend(x[None, :])
        else:
            self._rows.append(self.encode(x))

    def extend(self, X: F64) -> None:  # X: (n, d)
        if self.centred and len(self._rows) == 0 and len(X):
            self.origin = origin_from(X[0], self.unit)
        self._rows.extend(self.encoded_block(X))

    def encode(self, x: F64) -> F64:
        """Return the row of x, shape (d,), as `replace`, `append_encoded`, `products` and `exponents` take it."""
        row = np.empty(self.dim + 2)
        h = np.subtract(x, self.origin, out=row[:-2])
        if self.root is not None:
            h[...] = self.root @ h
        h /= self.unit
        square = -0.5 * ddot(h, h)
        row[-2] = square if square > LOWEST else LOWEST
        row[-1] = 1.0
        if self.floats is DOUBLE:
            return row
        return row.astype(self.floats.dtype) if square > SINGLE_LOWEST else self._rounded(row[None, :])[0]

    def encoded_block(self, X: F64) -> F64:
        """Return the rows of X, shape (n, d), as `encode` does."""
        rows = np.ones((len(X), self.dim + 2))
        heads, squares = np.subtract(X, self.origin, out=rows[:, :-2]), rows[:, -2]
        if self.root is not None:
            heads[...] = heads @ self.root
        heads /= self.unit
        np.einsum("ij,ij->i", heads, heads, out=squares)
        squares *= -0.5
        np.maximum(squares, LOWEST, out=squares)
        return rows if self.floats is DOUBLE else self._rounded(rows)

    def _rounded(self, rows: F64) -> F64:
        """Round rows to single precision.

        Far points are clipped where distances count. Raise DivergedError where inner products do.
        """
        squares = rows[:, -2]
        if squares.min(initial=0.0) <= SINGLE_LOWEST:
            if not self.centred:
                require_single(-float(squares.min()))
            heads = rows[:, :-2]
            np.clip(heads, -SINGLE_FARTHEST, SINGLE_FARTHEST, out=heads)
            np.maximum(squares, SINGLE_LOWEST, out=squares)
        return rows.astype(self.floats.dtype)

    def decode(self, rows: F64) -> F64:
        """Return the points of these rows, up to rounding."""
        heads = rows[..., :-2] * self.unit
        if self.root is not None:
            heads = np.linalg.solve(self.root, heads.T).T
        return heads + self.origin

    def encoded(self, i: int) -> F64:
        """Return the row of point i, without a copy."""
        return self._rows.view[i]

    def append_encoded(self, row: F64) -> None:
        self._rows.append(row)

    def replace(self, i: int, row: F64) -> None:
        """Replace point i by an encoded point."""
        self._rows.view[i] = row

    def replace_block(self, indices: NDArray[np.intp], X: F64) -> None:  # X: (n, d)
        """Replace the points at n indices by the points X."""
        self._rows.view[indices] = self.encoded_block(X)

    def truncate(self, size: int) -> None:
        """Keep the oldest `size` points."""
        self._rows.truncate(size)

    def select(self, order: NDArray[np.intp]) -> None:
        """Keep the points with these indices, in this order."""
        self._rows.select(order)

    def coordinates(self) -> F64:
        """Return a copy of the points, shape (n, d)."""
        return self.decode(self._rows.view)

    def products(self, row: F64) -> F64:
        """Return <s, x> for every point, shape (n,), for an encoded x. Only for points that are not centred."""
        return self.floats.widened(self._rows.view[:, :-2] @ row[:-2])

    def products_block(self, X: F64) -> F64:
        """Return <s_i, x_j>, shape (n, m), for X of shape (m, d). Only for points that are not centred."""
        return self._rows.view[:, :-2] @ X.T  # float64, as X is

    def exponents(self, row: F64) -> F64:
        """Return -|s - x|^2 / (2 unit^2) for every point, shape (n,), for an encoded x; rounding may lift it above 0."""
        query = row.copy()
        query[-2], query[-1] = 1.0, row[-2]
        is_wide = query[-1] < self._wide
        if not is_wide and self.floats is DOUBLE:
            return self._rows.view.dot(query)
        # Products of two wide points may overflow, but `_mend` replaces them. With AVX-512, OpenBLAS at times reports an
        # invalid value in a float32 product of finite numbers, which is right nevertheless.
        with np.errstate(over="ignore", invalid="ignore"):
            u = self.floats.widened(self._rows.view.dot(query))
        if is_wide:
            self._mend(u[:, None], row[None, :], np.zeros(1, dtype=np.intp))
        return u

    def exponents_block(self, X: F64) -> F64:
        """Return -|s_i - x_j|^2 / (2 unit^2), shape (n, m), for X of shape (m, d)."""
        queries = self.encoded_block(X)
        queries[:, -1] = queries[:, -2]
        queries[:, -2] = 1.0
        if queries[:, -1].min(initial=0.0) >= self._wide:
            return self.floats.widened(self._rows.view @ queries.T)
        with np.errstate(over="ignore", invalid="ignore"):
            u = self.floats.widened(self._rows.view @ queries.T)
        self._mend(u, queries, np.flatnonzero(queries[:, -1] < self._wide))
        return u

    def city_blocks(self, rows: F64) -> F64:
        """Return |s_i - x_j|_1 / unit, shape (n, m), for m encoded x.

        Not from decoded points, which have lost the digits that the origin saves.
        """
        # Imported here: it takes a tenth of a second, and few need it.
        from scipy.spatial.distance import cdist

        return np.asarray(cdist(self._rows.view[:, :-2], rows[:, :-2], "cityblock"), dtype=np.float64)

    def _mend(self, u: F64, queries: F64, columns: NDArray[np.intp]) -> None:
        """Recompute, in the given columns of wide inputs, the exponents for points that are wide too."""
        from scipy.spatial.distance import cdist

        rows = np.flatnonzero(self._rows.view[:, -2] < self._wide)
        squares = cdist(self._rows.view[rows, :-2], queries[columns, :-2], "sqeuclidean")
        u[np.ix_(rows, columns)] = np.maximum(-0.5 * squares, LOWEST)

    def pack(self) -> dict[str, Stored]:
        arrays: dict[str, Stored] = {
            "rows": self._rows.pack(),
            "origin": self.origin.copy(),
            "centred": np.array(float(self.centred)),
            "unit": self.unit.copy(),
        }
        if self.root is None:
            return arrays
        # The marker makes `unpack` fail if the root is missing.
        return arrays | {"centred": np.array(IN_METRIC), "root": self.root.copy()}

    @classmethod
    def unpack(cls, arrays: dict[str, Stored]) -> Points:
        rows, origin = arrays["rows"], arrays["origin"]
        if origin.ndim != 1 or rows.ndim != 2 or rows.shape[1] != len(origin) + 2:
            raise StateFormatError(f"points of shape {rows.shape} with an origin of shape {origin.shape}")
        centred, unit = bool(arrays["centred"]), float(arrays["unit"])
        if not unit > 0.0:
            raise StateFormatError(f"points with a unit of length of {unit}")
        root = np.array(arrays["root"], dtype=np.float64, order="C") if arrays["centred"] == IN_METRIC else None
        if root is not None and root.shape != (len(origin), len(origin)):
            raise StateFormatError(f"points in {len(origin)} dimensions with a metric of shape {root.shape}")
        capacity, floats = max(16, len(rows)), FloatType.in_which(rows)
        points = cls(len(origin), centred=centred, unit=unit, root=root, capacity=capacity, floats=floats)
        points.origin = np.array(origin, dtype=np.float64)
        points._rows.extend(rows)
        return points
