r"""The embedding of SkeGD: made of stored points by two sketches of their kernel matrix, and the function it takes over.

The letters are those of the table in `skegd`. All ranks are choices, since rounding moves small singular values.

References: [zhang2019].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, svd
from scipy.sparse import csr_array

from okl_core.contract.rng import RoundRng
from okl_core.kernels.kernels import Kernel
from okl_core.types import F64

NEGLIGIBLE = 1e-8
"""Singular values below this share of the largest are taken for 0: what they add is rounding, magnified."""


class Embedding(NamedTuple):
    """What a round makes of the points: the landmarks' indices, the sketch rows of the new points, Q and w."""

    chosen: F64
    rows: F64
    Q: F64
    w: F64


def sketch_rows(count: int, size: int, blocks: int, rng: RoundRng) -> F64:
    """Rows of S_p, shape (count, blocks): for each block one column, counted from 1, with the sign of its entry."""
    edges = np.arange(blocks + 1) * size // blocks
    widths = np.diff(edges)
    drawn = np.floor(rng.uniform(count * blocks).reshape(count, blocks) * (2 * widths))
    return (edges[:-1] + 1.0 + drawn // 2.0) * np.where(drawn % 2 == 0, 1.0, -1.0)


def draw_landmarks(points: int, count: int, rng: RoundRng) -> F64:
    """`count` different indices below `points`, uniformly, in ascending order."""
    return np.sort(np.argsort(rng.uniform(points), kind="stable")[:count]).astype(np.float64)


def embedding_matrix(
    kernel: Kernel,
    S: F64,  # (n, d)
    rows: F64,  # (n, c)
    size: int,
    landmarks: NDArray[np.intp],
    rank: int,
    rng: RoundRng,
) -> F64:
    """Q, shape (landmarks, k). k <= rank is smaller where the sketch has no more than rounding beyond it."""
    n, c = rows.shape
    columns = np.abs(rows).astype(np.intp) - 1
    S_p = csr_array(((np.sign(rows) / np.sqrt(c)).ravel(), columns.ravel(), np.arange(0, n * c + 1, c)), (n, size))
    SK = S_p.T @ kernel.gram(S)
    # Symmetric, it is its transpose, which LAPACK overwrites.
    sketched = (S_p.T @ SK.T).T
    SK_m = SK[:, landmarks]
    del SK
    eigenvalues, V = eigh(sketched, subset_by_index=(size - rank, size - 1), check_finite=False, overwrite_a=True)
    k = max(1, rng.pick(int(np.count_nonzero(eigenvalues > NEGLIGIBLE * eigenvalues[-1]))))
    # Largest first, and with the largest entry positive: an eigenvector's sign is free.
    root, V = np.sqrt(np.maximum(eigenvalues[: -k - 1 : -1], 0.0)), V[:, : -k - 1 : -1]
    V = V * np.where(V[np.abs(V).argmax(axis=0), np.arange(k)] < 0.0, -1.0, 1.0)
    return least_squares(SK_m, V * root, rng)


def least_squares(A: F64, B: F64, rng: RoundRng) -> F64:
    """A^+ B, C-contiguous: the shortest X that has A X nearest to B, for A of shape (m, n), B of shape (m,) or (m, k)."""
    U, sigma, Vt = svd(A, full_matrices=False, check_finite=False)
    k = rng.pick(int(np.count_nonzero(sigma > NEGLIGIBLE * sigma[0])))
    return np.ascontiguousarray((Vt[:k].T / sigma[:k]) @ (U[:, :k].T @ B))
