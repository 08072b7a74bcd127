r"""The embedding of SkeGD, from two sketches of the stored points' kernel matrix, and the weights that it starts with.

| symbol   | meaning                                                                        | shape        |
|----------|--------------------------------------------------------------------------------|--------------|
| B        | budget: points stored in the first phase; n, all stored by now                 |              |
| K        | kernel matrix of the points stored                                             | (n, n)       |
| S_p, c   | count sketch: a row has one entry +-1 / sqrt(c) in each of c blocks of columns | (n, s_p)     |
| m, s_m   | landmarks: points drawn of the first B                                         | (s_m, d)     |
| V, Sigma | the k largest eigenvalues of S_p^T K S_p                                       | (s_p, k), (k,) |
| Q        | (S_p^T K_{., m})^+ V Sigma^{1/2}                                               | (s_m, k)     |
| z        | Q^T (k(s, x_t))_{s in m}, the embedded input                                   | (k,)         |
| w        | weights of z                                                                   | (k,)         |

All ranks are choices, since rounding moves small eigenvalues and singular values.

References: [zhang2019].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svd

from okl_core.contract.rng import RoundRng
from okl_core.first_order.leading_eigenvectors import leading_eigenvectors
from okl_core.kernels.kernels import Kernel
from okl_core.learners.skegd.skegd_state import SkegdConfig, SkegdState
from okl_core.types import F64

NEGLIGIBLE = 1e-8
"""Eigenvalues and singular values below this share of the largest are taken for 0: they are magnified rounding errors."""


class SketchedEmbedding(NamedTuple):
    """An embedding, and the weights that it starts with."""

    chosen: F64
    """(s_m,): which points the landmarks are."""
    rows: F64
    """(., c): the rows that S_p gains."""
    Q: F64
    w: F64


def embed(config: SkegdConfig, S: F64, a: F64, rng: RoundRng) -> SketchedEmbedding:
    """Make the first embedding, of the points S, shape (B, d), with coefficients a, shape (B,)."""
    s_p, s_m, k = config.sizes
    rows = sketch_rows(len(S), s_p, config.blocks, rng)
    chosen = draw_landmarks(len(S), s_m, rng)
    m = chosen.astype(np.intp)
    Q = embedding_matrix(config.kernel, S, rows, s_p, m, k, rng)
    f = config.kernel.block(S[m], S) @ a
    return SketchedEmbedding(chosen, rows, Q, least_squares(config.kernel.gram(S[m]) @ Q, f, rng))


def embed_anew(config: SkegdConfig, state: SkegdState, S: F64, w: F64, rng: RoundRng) -> SketchedEmbedding:
    """Make a new embedding after a point, the last of S, was stored; w are the weights in the old one."""
    s_p, _, k = config.sizes
    row = sketch_rows(1, s_p, config.blocks, rng)
    m = state.chosen.astype(np.intp)
    Q = embedding_matrix(config.kernel, S, np.vstack((state.rows.view, row)), s_p, m, k, rng)
    beta = state.Q @ w
    if config.carry == "match":
        k_m = config.kernel.block(S[m], S[-1:])[:, 0]
        z = k_m @ Q
        size2 = float(z @ z)
        return SketchedEmbedding(state.chosen, row, Q, (float(k_m @ beta) / size2 if size2 > 0.0 else 0.0) * z)
    return SketchedEmbedding(state.chosen, row, Q, least_squares(Q, beta, rng))


def absorb_embedding(state: SkegdState, embedding: SketchedEmbedding) -> None:
    """Carry a new embedding of the state's points into the state."""
    if not len(state.landmarks):
        state.landmarks.extend(state.points.coordinates()[embedding.chosen.astype(np.intp)])
    state.rows.extend(embedding.rows)
    state.chosen, state.Q, state.w = embedding.chosen, embedding.Q, embedding.w
    state.waited = 0


def sketch_rows(count: int, size: int, blocks: int, rng: RoundRng) -> F64:
    """Draw rows of S_p, shape (count, blocks): the column of the entry in each block, counted from 1, times its sign."""
    edges = np.arange(blocks + 1) * size // blocks
    widths = np.diff(edges)
    drawn = np.floor(rng.uniform(count * blocks).reshape(count, blocks) * (2 * widths))
    return (edges[:-1] + 1.0 + drawn // 2.0) * np.where(drawn % 2 == 0, 1.0, -1.0)


def draw_landmarks(points: int, count: int, rng: RoundRng) -> F64:
    """Draw `count` different indices below `points`, uniformly, in ascending order."""
    return np.sort(np.argsort(rng.uniform(points), kind="stable")[:count]).astype(np.float64)


def embedding_matrix(
    kernel: Kernel,
    S: F64,  # (n, d)
    rows: F64,  # (n, c)
    size: int,  # s_p
    landmarks: NDArray[np.intp],  # (s_m,)
    rank: int,
    rng: RoundRng,
) -> F64:
    """Q, shape (s_m, k), with k <= rank: eigenvalues that are rounding errors are left out."""
    from scipy.sparse import csr_array  # its import takes longer than that of this package

    n, c = rows.shape
    columns = np.abs(rows).astype(np.intp) - 1
    S_p = csr_array(((np.sign(rows) / np.sqrt(c)).ravel(), columns.ravel(), np.arange(0, n * c + 1, c)), (n, size))
    SK = S_p.T @ kernel.gram(S)
    sketched = S_p.T @ SK.T
    SK_m = SK[:, landmarks]
    del SK
    eigenvalues, V = leading_eigenvectors(sketched, rank, NEGLIGIBLE, rng)
    return least_squares(SK_m, V * np.sqrt(np.maximum(eigenvalues, 0.0)), rng)


def least_squares(A: F64, B: F64, rng: RoundRng) -> F64:
    """A^+ B, C-contiguous: the shortest X with A X nearest to B.

    A has shape (m, n), B shape (m,) or (m, k).
    """
    U, sigma, Vt = svd(A, full_matrices=False, check_finite=False)
    k = rng.pick(int(np.count_nonzero(sigma > NEGLIGIBLE * sigma[0])))
    return np.ascontiguousarray((Vt[:k].T / sigma[:k]) @ (U[:, :k].T @ B))
