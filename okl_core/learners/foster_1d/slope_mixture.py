r"""Weights of the slopes of one input, on a quadrature of [-B, B], multiplied by likelihoods without losing any.

| symbol   | meaning                                                                          | shape  |
|----------|----------------------------------------------------------------------------------|--------|
| w        | the nodes: equally spaced in [-B, B], row 0 those >= 0, row 1 the same negated   | (2, m) |
| L        | logarithms of the weights of the nodes, the largest 0                            | (2, m) |
| M        | factors of the weights since: the weights are exp(L) M                           | (2, m) |
| e        | exp(-\|w x\|), so that sigmoid(\|w x\|) = 1 / (1 + e) and sigmoid(-\|w x\|) = e / (1 + e) | (m,)   |
| p        | mean of sigmoid(w x) under the weights                                           |        |

Multiplying into M takes no logarithm. Before a factor in M can come near the smallest number, M is carried into L; the
factors of an input so large that a single one might are carried into L at once. So no weight is ever lost.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple, final

import numpy as np

from okl_core.errors import StateFormatError
from okl_core.types import F64

DEEPEST = 300.0
"""Factors stay above exp(-300): then their product with those of one more input is a normal number."""

ENDS = (3.0 / 8.0, 7.0 / 6.0, 23.0 / 24.0)
"""The outermost weights of the quadrature, all others are 1. It is the trapezoid rule with ends of the order of Simpson's,
whose weights 4 and 2 would halve the nodes where the weights peak between two of them."""


class NodeSigmoids(NamedTuple):
    """sigmoid(|w x|) and sigmoid(-|w x|) at the nodes w >= 0 for one input x, shape (m,) each."""

    likely: F64
    unlikely: F64


@functools.lru_cache(maxsize=8)
def half_nodes(B: float, nodes: int) -> F64:
    """The nodes w >= 0, shape (m,), of an odd number of nodes; read-only."""
    half = np.linspace(0.0, B, nodes // 2 + 1)
    half.setflags(write=False)
    return half


def depth(B: float, x: float) -> float:
    """At least -log sigmoid(w x) for every |w| <= B."""
    return B * abs(x) + math.log(2.0)


def node_sigmoids(half: F64, x: float) -> NodeSigmoids | None:  # half: (m,)
    """The sigmoids of x at these nodes; None for an x so large that they cannot be told from 0."""
    if depth(half.item(-1), x) > DEEPEST:
        return None
    e = np.exp(-abs(x) * half)
    likely = 1.0 / (1.0 + e)
    return NodeSigmoids(likely, e * likely)


@final
class SlopeMixture:
    """L and M, and the depth of M: none of its factors is below exp(-depth)."""

    __slots__ = ("L", "M", "depth", "weights")

    def __init__(self, L: F64) -> None:  # L: (2, m)
        self._settle(L)

    @classmethod
    def uniform(cls, nodes: int) -> SlopeMixture:
        """The weights of the quadrature for an odd number of nodes."""
        row = np.zeros(nodes // 2 + 1)
        # The node 0 is in both rows.
        row[0] = math.log(0.5)
        row[: -len(ENDS) - 1 : -1] = np.log(ENDS)
        return cls(np.array([row, row]))

    @property
    def nbytes(self) -> int:
        return self.L.nbytes + self.M.nbytes + self.weights.nbytes

    def mean(self, half: F64) -> float:
        """The mean slope. `half`: the nodes w >= 0, shape (m,)."""
        p = np.exp(self._log_weights())
        return float((p[0] - p[1]) @ half / p.sum())

    def log_odds(self, half: F64, x: float, sigmoids: NodeSigmoids | None) -> float:
        """log(p / (1 - p)) of the input x, whose `node_sigmoids` these are."""
        if sigmoids is None:
            L = self._log_weights()
            return _log_sum(L + _log_sigmoids(half, x)) - _log_sum(L + _log_sigmoids(half, -x))
        masses = ((self.weights * self.M) @ np.array(sigmoids).T).tolist()
        (a, b), (c, d) = masses if x >= 0.0 else masses[::-1]
        return math.log(a + d) - math.log(b + c)

    def absorb(self, half: F64, x: float, y: float, sigmoids: NodeSigmoids | None) -> None:
        """Multiply the weights by sigmoid(y w x), the likelihood of the truth y = +-1 of the input x."""
        if sigmoids is None:
            self._settle(self._log_weights() + _log_sigmoids(half, x * y))
            return
        deeper = depth(half.item(-1), x)
        if self.depth + deeper > DEEPEST:
            self._settle(self._log_weights())
        rows = sigmoids if x * y >= 0.0 else sigmoids[::-1]
        self.M[0] *= rows[0]
        self.M[1] *= rows[1]
        self.depth += deeper

    def _log_weights(self) -> F64:
        return self.L + np.log(self.M)

    def _settle(self, L: F64) -> None:
        """Go on from these logarithms, with M = 1."""
        self.depth = 0.0
        self.L = L - L.max()
        self.M = np.ones_like(L)
        self.weights: F64 = np.exp(self.L)
        """Kept, since L changes far less often than M."""

    def pack(self) -> dict[str, F64]:
        return {"L": self.L.copy(), "M": self.M.copy(), "depth": np.array(self.depth)}

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> SlopeMixture:
        L, M = arrays["L"], arrays["M"]
        if L.ndim != 2 or len(L) != 2 or L.shape != M.shape:
            raise StateFormatError(f"weights of shape {L.shape} with factors of shape {M.shape}")
        if not (M > 0.0).all():
            raise StateFormatError("a factor of a weight is not positive")
        mixture = cls(np.array(L, dtype=np.float64))
        mixture.M, mixture.depth = np.array(M, dtype=np.float64), float(arrays["depth"].item())
        return mixture


def _log_sigmoids(half: F64, x: float) -> F64:
    """log sigmoid(w x) at the nodes, shape (2, m)."""
    a = x * half
    return -np.logaddexp(0.0, np.array([-a, a]))


def _log_sum(a: F64) -> float:
    """log of the sum of exp."""
    return float(np.logaddexp.reduce(a.ravel()))
