"""Kernel alignment against the dense formulas, and against what the learner of the paper adds up."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core import create, diagnostics
from okl_core.diagnostics import alignment
from okl_core.diagnostics.alignment import BLOCK, RunningAlignment
from okl_core.errors import ConfigError, NonFiniteError, ShapeError
from okl_core.kernels.kernels import Gaussian, Kernel, Laplacian, Linear, Matern, Polynomial
from okl_core.types import F64

KERNELS: dict[str, Kernel] = {
    "gaussian": Gaussian(sigma=0.5),
    "laplacian": Laplacian(sigma=2.0),
    "matern": Matern(nu=2.5),
    "linear": Linear(),
    "polynomial": Polynomial(degree=3, offset=0.5),
    "homogeneous": Polynomial(degree=2, offset=0.0),
    "too many features": Polynomial(degree=16, offset=1.0),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def stream(n: int, dim: int = 5, seed: int = 0) -> tuple[F64, F64]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.6, 0.6, (n, dim))
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0.0, 1.0, -1.0)


def dense(kernel: Kernel, X: F64, y: F64) -> tuple[F64, F64]:
    """y^T K y and A_t of every prefix, by their definitions."""
    K = kernel.gram(X)
    polarization = np.array([y[:t] @ K[:t, :t] @ y[:t] for t in range(1, len(y) + 1)])
    return polarization, np.cumsum(K.diagonal()) - polarization / np.arange(1, len(y) + 1)


def dense_deltas(kernel: Kernel, X: F64, y: F64, M: int) -> list[float]:
    """delta_t as the squared distance of the gradient to its guess, less the guess's own square, in the kernel matrix."""
    K, found = kernel.gram(X), []
    for t in range(len(y)):
        guess = np.zeros(len(y))
        if t:
            guess[max(0, t - M) : t] = -y[max(0, t - M) : t] / min(t, M)
        gradient = np.zeros(len(y))
        gradient[t] = -y[t]
        found.append(max((gradient - guess) @ K @ (gradient - guess) - guess @ K @ guess, 0.0))
    return found


@every_kernel
@pytest.mark.parametrize("pieces", [[], [0, 1, 1, 40], [300, BLOCK, BLOCK + 1]], ids=["whole", "short", "long"])
def test_every_prefix_is_as_defined(kernel: Kernel, pieces: list[int]) -> None:
    X, y = stream(BLOCK + 60)
    aligned = RunningAlignment(kernel, 5)
    assert aligned.value == 0.0
    cuts = [0, *pieces, len(y)]
    found = np.concatenate([aligned.extend(X[i:j], y[i:j]) for i, j in pairwise(cuts)])
    polarization, alignments = dense(kernel, X, y)
    np.testing.assert_allclose(found, polarization, rtol=1e-9)
    assert (aligned.t, aligned.polarization) == (len(y), found[-1])
    assert aligned.value == pytest.approx(alignments[-1], rel=1e-9)
    assert alignment.kernel_polarization(kernel, X, y) == pytest.approx(polarization[-1], rel=1e-9)
    assert diagnostics.kernel_alignment(kernel, X, y) == pytest.approx(alignments[-1], rel=1e-9)


@pytest.mark.parametrize("name", ["linear", "polynomial", "homogeneous"])
def test_running_sums_are_the_recorded_stream(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = stream(400)
    by_features = RunningAlignment(KERNELS[name], 5)
    monkeypatch.setattr(alignment, "MAX_FEATURES", 0)
    recorded = RunningAlignment(KERNELS[name], 5)
    np.testing.assert_allclose(by_features.extend(X, y), recorded.extend(X, y), rtol=1e-9)
    assert (len(by_features._y), len(recorded._y)) == (0, 400)


@every_kernel
@pytest.mark.parametrize("M", [1, 15, 1000])
def test_deltas_are_as_defined(kernel: Kernel, M: int) -> None:
    X, y = stream(90)
    found = alignment.alignment_deltas(kernel, X, y, window=M)
    np.testing.assert_allclose(found, dense_deltas(kernel, X, y, M), rtol=1e-9, atol=1e-9)


def test_deltas_across_blocks() -> None:
    kernel, (X, y) = KERNELS["gaussian"], stream(2 * BLOCK + 40)
    found = alignment.alignment_deltas(kernel, X, y, window=BLOCK + 7)
    for t in [BLOCK - 1, BLOCK, BLOCK + 8, 2 * BLOCK, 2 * BLOCK + 3]:
        past = slice(max(0, t - BLOCK - 7), t)
        guess = float(np.mean(y[past] * kernel.row(X[past], X[t])))
        assert found[t] == pytest.approx(max(1.0 - 2.0 * y[t] * guess, 0.0), rel=1e-9)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 60), M=st.integers(1, 70), noise=st.floats(0.0, 3.0))
def test_deltas_are_bounded_by_the_alignment(seed: int, n: int, M: int, noise: float) -> None:
    """sum delta_t <= 4 A_T + D."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.where(X[:, 0] + noise * rng.normal(size=n) > 0.0, 1.0, -1.0)
    for kernel in (Gaussian(sigma=0.7), Linear()):
        total = float(alignment.alignment_deltas(kernel, X, y, window=M).sum())
        bound = 4.0 * alignment.kernel_alignment(kernel, X, y) + float(kernel.diag(X).max())
        assert total <= bound * (1.0 + 1e-9) + 1e-9


def test_the_learner_adds_up_those_of_its_losses() -> None:
    """Without a projection, a removal or a round without loss its sum is the stream's."""
    X, y = stream(120)
    spec = {
        "kind": "pomdr",
        "config": {
            "kernel": {"kind": "gaussian", "sigma": 0.5},
            "norm_bound": 0.01,  # so that every round has a loss
            "budget": 500,
            "ald_threshold": 1e-12,
            "pomd_budget": 200,
            "window": 7,
        },
    }
    learner = create(spec, 5)
    assert (learner.run(X, y).losses > 0.0).all()
    # It leaves out the first round, which has no guess.
    total = float(alignment.alignment_deltas(Gaussian(sigma=0.5), X, y, window=7)[1:].sum())
    assert learner.describe()["sum_delta"] == pytest.approx(total, rel=1e-9)


def test_a_kernel_that_sees_the_labels_is_aligned() -> None:
    _, y = stream(50)
    assert alignment.kernel_alignment(Linear(), y[:, None], y) == pytest.approx(0.0, abs=1e-9)
    assert math.isclose(alignment.kernel_polarization(Linear(), y[:, None], y), 50.0**2)


def test_bad_arguments() -> None:
    X, y = stream(10)
    aligned = RunningAlignment(Linear(), 5)
    for bad in ((X[:, :4], y), (X, y[:9]), (X[0], y)):
        with pytest.raises(ShapeError):
            aligned.extend(*bad)
    X[3, 2] = math.nan
    with pytest.raises(NonFiniteError):
        aligned.extend(X, y)
    assert aligned.t == 0
    with pytest.raises(ConfigError):
        alignment.alignment_deltas(Linear(), np.ones((2, 1)), np.ones(2), window=0)
