"""What a round cannot do without: the parts of its mathematics, each by the best routine that numpy and scipy offer.

A `Part` is made once, on arrays of the learner's shapes, and then called and timed. The floor of a learner is the sum of its
parts. It leaves out all that is not arithmetic: checks, coins, objects, the growth of a dictionary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.blas import daxpy, ddot, dsymv, dsyr, dtpsv  # pyright: ignore[reportAttributeAccessIssue]
from scipy.linalg.lapack import dpotrf, dpotri  # pyright: ignore[reportAttributeAccessIssue]

CALLS_S = 0.02
"""CPU time that a part is called for in one measurement, at least."""


@dataclass(frozen=True)
class Part:
    call: Callable[[], object]
    times: float = 1.0
    """Calls a round."""
    with_loss: bool = False
    """Only in rounds with a loss."""

    def at(self, share: float) -> Part:
        """In so large a share of the rounds."""
        return replace(self, times=share * self.times)

    def seconds(self) -> float:
        """CPU time of one call."""
        calls, start = 0, time.process_time()
        while (spent := time.process_time() - start) < CALLS_S:
            for _ in range(10):
                self.call()
            calls += 10
        return spent / calls


def row(points: int, d: int = 10) -> Part:
    """A Gaussian kernel row against so many points in d dimensions, and its product with a vector."""
    rng = np.random.default_rng(0)
    S, x, a = rng.random((points, d + 2)), -rng.random(d + 2), rng.random(points)

    def call() -> float:
        u = S.dot(x)
        return ddot(np.exp(u, out=u), a)

    return Part(call)


def cosines(features: int, d: int = 10) -> Part:
    """Random Fourier features of an input, and their product with a vector."""
    rng = np.random.default_rng(0)
    W, x, a = rng.random((features, d)), rng.random(d), rng.random(features)

    def call() -> float:
        u = W.dot(x)
        return ddot(np.cos(u, out=u), a)

    return Part(call)


def solve(n: int, times: float = 1.0, with_loss: bool = False) -> Part:
    """A triangular solve."""
    packed, b = np.zeros(n * (n + 1) // 2), np.random.default_rng(0).random(n)
    # The identity: the rows of the lower triangle are the columns of the upper one.
    packed[np.cumsum(np.arange(1, n + 1)) - 1] = 1.0
    return Part(lambda: dtpsv(n, packed, b, lower=0, trans=1), times, with_loss)


def symmetric(n: int, times: float = 1.0) -> Part:
    """The product of a symmetric matrix with a vector."""
    P, x = np.eye(n), np.random.default_rng(0).random(n)
    return Part(lambda: dsymv(1.0, P.T, x, lower=1), times)


def rank_one(n: int, times: float = 1.0, with_loss: bool = False) -> Part:
    """A rank-one update of a symmetric matrix."""
    P, x = np.eye(n), np.random.default_rng(0).random(n)
    return Part(lambda: dsyr(1e-12, x, a=P.T, lower=1, overwrite_a=1), times, with_loss)


def axpy(n: int, times: float = 1.0, with_loss: bool = False) -> Part:
    """A step of a vector along another."""
    x, w = np.random.default_rng(0).random(n), np.zeros(n)
    return Part(lambda: daxpy(x, w, a=1e-12), times, with_loss)


def product(n: int, m: int, with_loss: bool = False) -> Part:
    """A matrix of shape (n, m) with a vector."""
    A, x = np.random.default_rng(0).random((n, m)), np.ones(m)
    return Part(lambda: A.dot(x), 1.0, with_loss)


def small(n: int, times: float) -> Part:
    """A dense system of a few equations."""
    A, b = np.eye(n), np.ones(n)
    return Part(lambda: np.linalg.solve(A, b), times)


def largest(n: int, with_loss: bool = True) -> Part:
    """The place of the largest of n numbers."""
    a = np.random.default_rng(0).random(n)
    return Part(a.argmax, 1.0, with_loss)


def factor_pass(rounds: int) -> Part:
    """A sum over the Cholesky factor of round t, in the mean over the rounds: a third of the last one's."""
    factor = np.ones(rounds * rounds // 2)
    return Part(factor.sum, 1.0 / 3.0)


def triangle(rounds: int, d: int) -> Part:
    """The triangle of a QR decomposition."""
    A = np.random.default_rng(0).random((rounds, d))
    return Part(lambda: np.linalg.qr(A, mode="r"))


def gradient_step(p: int) -> Part:
    """A forecast from p features, the loss's derivative, and a step against it."""
    x, w = np.random.default_rng(0).random(p), np.zeros(p)
    return Part(lambda: daxpy(x, w, a=-0.1 / (1.0 + math.exp(-ddot(w, x)))))


def distances(points: int, d: int) -> Part:
    """Squared distances to so many points in d dimensions, and the least of them."""
    rng = np.random.default_rng(0)
    S, x = rng.random((points, d + 1)), rng.random(d + 1)
    return Part(lambda: S.dot(x).argmin())


def exponentials(n: int) -> Part:
    """exp of n numbers."""
    a, out = np.linspace(-1.0, 0.0, n), np.empty(n)
    return Part(lambda: np.exp(a, out=out))


def on_dictionary(points: int, steps_always: bool, d: int = 10) -> tuple[Part, ...]:
    """A second-order round on a full dictionary: its row, the coordinates, P phi, and the update."""
    return row(points, d), solve(points), symmetric(points), rank_one(points, with_loss=not steps_always), axpy(points)


def discount(n: int, rounds: int) -> Part:
    """A positive definite matrix inverted, once in so many rounds."""
    A = np.eye(n, order="F")
    return Part(lambda: dpotri(dpotrf(A, lower=1)[0], lower=1), 1.0 / rounds)


def in_features(p: int, with_loss: bool = False) -> tuple[Part, ...]:
    """A second-order round on p features: the product, and the update."""
    return symmetric(p), rank_one(p, with_loss=with_loss), axpy(p, with_loss=with_loss)
