r"""A linear function for every ball of a packing: least squares over the rounds in the ball, with a regularised slope.

| symbol | meaning                                                           | shape  |
|--------|-------------------------------------------------------------------|--------|
| s      | the centre; n rounds (z, y) are in its ball                       | (d,)   |
| zbar   | mean of their z; s if there are none                              | (d,)   |
| ybar   | mean of their y                                                   |        |
| C      | lambda I + sum (z - zbar) (z - zbar)^T                            | (d, d) |
| S      | a square root of C^{-1}, see `linalg.square_root`                 | (d, d) |
| w      | C^{-1} sum (z - zbar) (y - ybar), the slope                       | (d,)   |

The fit minimises sum (a + <w, z - s> - y)^2 + lambda |w|^2 over a and w; its value at z is ybar + <w, z - zbar>. Another
round in the ball adds n / (n + 1) (z - zbar) (z - zbar)^T to C, with n and zbar from before the round.
"""

from __future__ import annotations

import math
from typing import final

from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import StateFormatError
from okl_core.linalg import square_root
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64


@final
class LocalLinear:
    """zbar, S and w of every centre, oldest first: d^2 + 2 d numbers each. The caller keeps n and ybar.

    Truths are in units of the length of their range, and z is within 1 of s, so nothing overflows.

    Examples
    --------
    >>> import numpy as np
    >>> fits = LocalLinear(dim=1)
    >>> fits.append(np.array([0.0]), 0.01)
    >>> fits.absorb(0, np.array([0.2]), 0.5, 1)
    >>> round(fits.rise(0, np.array([0.2])), 6)
    0.166667
    """

    __slots__ = ("means", "roots", "slopes")

    def __init__(self, dim: int) -> None:
        self.means = GrowingArray(dim)
        self.slopes = GrowingArray(dim)
        self.roots = GrowingArray(dim, dim)

    def __len__(self) -> int:
        return len(self.means)

    @property
    def dim(self) -> int:
        return self.means.view.shape[1]

    @property
    def nbytes(self) -> int:
        return self.means.nbytes + self.slopes.nbytes + self.roots.nbytes

    def rise(self, i: int, z: F64) -> float:
        """Return <w, z - zbar> of centre i, for z of shape (d,): O(d)."""
        return ddot(self.slopes.view[i], z - self.means.view[i])

    def append(self, s: F64, regularization: float) -> None:
        """Add a centre, shape (d,). Its w stays 0 until its ball has a second round."""
        self.means.append(s)
        self.slopes.append(0.0)
        self.roots.append(0.0)
        self.roots.view[-1].flat[:: len(s) + 1] = 1.0 / math.sqrt(regularization)

    def absorb(self, i: int, z: F64, residual: float, n: float) -> None:
        """Add a round to the fit of its ball, after n others with mean ybar; `residual` is y - ybar. O(d^2)."""
        mean = self.means.view[i]
        delta = z - mean
        if n:
            weight = n / (n + 1.0)
            S, w = self.roots.view[i], self.slopes.view[i]
            f = square_root.project(S, delta)
            q = ddot(f, f)
            gain = weight * (residual - ddot(w, delta)) / (1.0 + weight * q)
            square_root.step(S, w, f, gain, square_root.shrinkage(weight, q))
        mean += delta / (n + 1.0)

    def pack(self) -> dict[str, F64]:
        return {"means": self.means.pack(), "slopes": self.slopes.pack(), "roots": self.roots.pack()}

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> LocalLinear:
        n, d = arrays["means"].shape
        if arrays["slopes"].shape != (n, d) or arrays["roots"].shape != (n, d, d):
            raise StateFormatError("means, slopes and roots of local fits do not match")
        fits = cls(d)
        fits.means, fits.slopes, fits.roots = (
            GrowingArray.unpack(arrays[name]) for name in ("means", "slopes", "roots")
        )
        return fits
