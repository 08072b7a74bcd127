r"""The leader of regularised logistic regression: the weights that would have done best so far, found to rounding.

    minimise  sum_i (n+_i log(1 + exp(-a_i)) + n-_i log(1 + exp(a_i))) + lambda |theta|^2,   a_i = phi_i^T theta.

| symbol | meaning                                                                  | shape  |
|--------|--------------------------------------------------------------------------|--------|
| Phi    | the distinct feature vectors phi_i, one a row                            | (k, p) |
| n+, n- | how often each came with the label +1, and with -1                       | (k,)   |
| w      | n sigmoid(a) sigmoid(-a), the loss's second derivative in a              | (k,)   |
| R      | R^T R = Phi^T W Phi + 2 lambda I, by orthogonal transformations of rows  | (p, p) |
| s, b   | Newton's step, and Phi s                                                 |        |
| r      | max \|b_i\|                                                              |        |

The loss's third derivative is at most its second in size. So along s the curvature grows at most as exp(r u), and the
objective falls up to u = log(1 + r) / r. The step u s needs no search and converges quadratically once r < 1.

References: [sun2019] theorem 2, for steps where the third derivative is bounded so.
"""

from __future__ import annotations

import math
import sys
from typing import NamedTuple, final

import numpy as np
from scipy.linalg.lapack import dgeqrf, dpotrs  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import DivergedError, StateFormatError
from okl_core.linalg.growing import GrowingArray
from okl_core.losses import sigmoids
from okl_core.types import F64

TOLERANCE = 1e-6
"""An r after which the next would be of the order of its square: 1e-12."""

SMALL = 1e-2
"""Where r is below this it falls by half or more from step to step, until rounding ends that."""

STEPS = 200
"""The largest number of Newton steps; some ten are taken from zero, two or three from the leader of the round before."""

HALVINGS = 100
"""The largest number of halvings in a line search."""


class LogisticObjective(NamedTuple):
    """What the leader minimises, but for lambda; the letters of the module's table."""

    Phi: F64
    positives: F64
    negatives: F64

    def leader(self, regularization: float, start: F64) -> F64:
        """The leader for this lambda, shape (p,), found from `start`: a few steps of O((k + p) p^2).

        Raises DivergedError if rounding, or an overflow, keeps the steps from converging.
        """
        # An overflow shows in its result.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._leader(regularization, start)

    def _leader(self, regularization: float, start: F64) -> F64:
        Phi, positives, negatives = self
        (k, p), theta, a, last = Phi.shape, start, Phi @ start, math.inf
        # A C-ordered (p, k + p) array is, transposed, the stack of rows that LAPACK reads without a copy.
        rows = np.empty((p, k + p))
        for _ in range(STEPS):
            up, down = sigmoids(a), sigmoids(-a)
            np.multiply(Phi.T, np.sqrt((positives + negatives) * up * down), out=rows[:, :k])
            rows[:, k:] = 0.0
            rows[:, k:].flat[:: p + 1] = math.sqrt(2.0 * regularization)
            R = dgeqrf(rows.T, overwrite_a=1)[0][:p]
            gradient = (negatives * up - positives * down) @ Phi + 2.0 * regularization * theta
            s = -dpotrs(R, gradient)[0]
            b = Phi @ s
            r = float(np.abs(b).max(initial=0.0))
            if not (math.isfinite(r) and np.isfinite(s).all()):
                break
            u = self._length(regularization, theta, a, s, b, r)
            theta = theta + u * s
            if r <= TOLERANCE or 0.5 * last < r < SMALL:
                return theta
            a, last = Phi @ theta, r
        raise DivergedError("the leader was not found; scale the inputs down, or raise the regularization")

    def _length(self, regularization: float, theta: F64, a: F64, s: F64, b: F64, r: float) -> float:
        """A u for which theta + u s has a lower objective, and where r is large at most half of the slope along s."""
        if r <= 1.0:
            return math.log1p(r) / r if r > 0.0 else 1.0

        def slope(u: float) -> float:
            v = a + u * b
            of_loss = (self.negatives * sigmoids(v) - self.positives * sigmoids(-v)) @ b
            return float(of_loss + 2.0 * regularization * ((theta + u * s) @ s))

        if slope(1.0) <= 0.0:
            return 1.0
        # Far from the leader the loss is all but linear, and the safe length a small part of the way.
        low, high, enough = math.log1p(r) / r, 1.0, 0.5 * slope(0.0)
        for _ in range(HALVINGS):
            if slope(low) >= enough:
                break
            middle = math.sqrt(low * high)
            low, high = (middle, high) if slope(middle) <= 0.0 else (low, middle)
        return low


@final
class DistinctRounds:
    """Rounds as distinct feature vectors with counts of their labels: as good as all rounds, and often far fewer numbers."""

    __slots__ = ("_places", "negatives", "positives", "rows")

    def __init__(self, p: int) -> None:
        self.rows, self.positives, self.negatives = GrowingArray(p), GrowingArray(), GrowingArray()
        self._places: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        keys = sys.getsizeof(self._places) + len(self) * (sys.getsizeof(b"") + self.rows.view[:1].nbytes)
        return self.rows.nbytes + self.positives.nbytes + self.negatives.nbytes + keys

    @property
    def longest(self) -> float:
        """The largest |phi|, or 0."""
        rows = self.rows.view
        return math.sqrt(float(np.einsum("ij,ij->i", rows, rows).max(initial=0.0)))

    def objective_with(self, phi: F64, y: float) -> LogisticObjective:
        """The objective once a round more is absorbed; changes nothing. O(k p)."""
        i = self._places.get(_key(phi))
        Phi, positives, negatives = self.rows.view, self.positives.view, self.negatives.view
        if i is None:
            i = len(Phi)
            Phi, positives, negatives = np.vstack((Phi, phi)), np.append(positives, 0.0), np.append(negatives, 0.0)
        else:
            positives, negatives = positives.copy(), negatives.copy()
        (positives if y > 0.0 else negatives)[i] += 1.0
        return LogisticObjective(Phi, positives, negatives)

    def absorb(self, phi: F64, y: float) -> None:
        """Count a round with the features phi, shape (p,), and the label y = +-1."""
        i = self._places.setdefault(_key(phi), len(self))
        if i == len(self):
            self.rows.append(phi)
            self.positives.append(0.0)
            self.negatives.append(0.0)
        (self.positives if y > 0.0 else self.negatives).view[i] += 1.0

    def pack(self) -> dict[str, F64]:
        return {"rows": self.rows.pack(), "positives": self.positives.pack(), "negatives": self.negatives.pack()}

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> DistinctRounds:
        rows, positives, negatives = arrays["rows"], arrays["positives"], arrays["negatives"]
        if rows.ndim != 2 or not positives.shape == negatives.shape == (len(rows),):
            raise StateFormatError(f"rows of shape {rows.shape} with counts of {positives.shape}, {negatives.shape}")
        rounds = cls(rows.shape[1])
        rounds.rows, rounds.positives, rounds.negatives = map(GrowingArray.unpack, (rows, positives, negatives))
        rounds._places = {_key(row): i for i, row in enumerate(rows)}
        return rounds


def _key(phi: F64) -> bytes:
    # -0.0 and 0.0 are the same number, and their sum with 0.0 the same bytes.
    return (phi + 0.0).tobytes()
