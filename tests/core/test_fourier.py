"""Random Fourier features: what they estimate, how well, and that blocks and rows are the same."""

from __future__ import annotations

import math

import numpy as np
import pytest

from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, DivergedError
from okl_core.kernels.fourier import SpectralKernel, draw, features
from okl_core.kernels.kernels import Gaussian, Laplacian, Matern

KERNELS = [Gaussian(sigma=0.7), Laplacian(sigma=1.3), Matern(sigma=0.7, nu=1.5), Matern(sigma=0.7, nu=2.5)]
IDS = ["gaussian", "laplacian", "matern 1.5", "matern 2.5"]


def rng_of(seed: int) -> RoundRng:
    rng = RoundRng(seed)
    rng.begin()
    rng.at(1)
    return rng


@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
def test_products_are_unbiased_estimates_of_the_kernel(kernel: SpectralKernel, dim: int) -> None:
    D, pairs = 40_000, 12
    X = np.random.default_rng(dim).uniform(-1.0, 1.0, (2 * pairs, dim))
    Z = features(draw(kernel, dim, D, rng_of(3)), X)
    estimates = np.einsum("ij,ij->i", Z[:pairs], Z[pairs:])
    k = np.diag(kernel.block(X[:pairs], X[pairs:]))
    # The mean of cos(omega^T delta) is k(delta), that of its square (1 + k(2 delta)) / 2.
    k_twice = np.diag(kernel.block(2.0 * X[:pairs], 2.0 * X[pairs:]))
    sd = np.sqrt(((1.0 + k_twice) / 2.0 - k * k) / D)
    assert (np.abs(estimates - k) < 4.0 * sd).all()
    # One standard deviation is not passed everywhere: the estimates are no better than they can be.
    assert 0.3 < np.sqrt(np.mean(((estimates - k) / sd) ** 2)) < 2.0
    assert np.einsum("ij,ij->i", Z, Z) == pytest.approx(np.ones(2 * pairs), abs=1e-12)


def test_gaussian_frequencies_are_normal() -> None:
    omega = 2.0 * math.pi * 0.7 * draw(Gaussian(sigma=0.7), 4, 20_000, rng_of(0))
    assert omega.mean(axis=0) == pytest.approx(np.zeros(4), abs=4.0 / math.sqrt(20_000))
    assert np.cov(omega.T) == pytest.approx(np.eye(4), abs=0.04)
    assert np.mean(omega**4) == pytest.approx(3.0, abs=0.1)
    assert np.isfinite(omega).all()


@pytest.mark.parametrize("n", [1, 2, 33])
def test_features_are_cosines_and_sines(n: int) -> None:
    rng = np.random.default_rng(n)
    frequencies, H = rng.standard_normal((50, 3)), rng.uniform(-3.0, 3.0, (n, 3))
    H[0] = 0.0
    angles = 2.0 * np.pi * (H @ frequencies.T)
    expected = np.hstack((np.cos(angles), np.sin(angles))) / math.sqrt(50.0)
    assert features(frequencies, H) == pytest.approx(expected, abs=1e-13)


def test_angles_at_the_edge_of_a_turn() -> None:
    turns = np.array([0.0, 0.25, 0.5, np.nextafter(0.5, 1.0), 0.75, 1.0, -0.5, 2.0**60, 1e150])[:, None]
    expected = np.array([[1, 0], [0, 1], [-1, 0], [-1, 0], [0, -1], [1, 0], [-1, 0], [1, 0], [1, 0]], dtype=np.float64)
    one = np.ones((1, 1))
    assert features(one, turns) == pytest.approx(expected, abs=1e-14)
    assert np.vstack([features(one, row[None, :]) for row in turns]) == pytest.approx(expected, abs=1e-14)


def test_overflow_is_refused() -> None:
    with pytest.raises(DivergedError):
        features(np.full((2, 2), 1e200), np.full((1, 2), 1e150))


def test_a_block_is_refused_only_if_one_of_its_rows_is() -> None:
    H = 5e153 * np.random.default_rng(0).uniform(0.5, 1.0, (64, 1))
    block = features(np.ones((3, 1)), H)
    assert np.isfinite(block).all()
    assert np.array_equal(block, np.vstack([features(np.ones((3, 1)), h[None, :]) for h in H]))
    H[5] *= 10.0
    for refused in (H, H[5:6]):
        with pytest.raises(DivergedError):
            features(np.ones((3, 1)), refused)


def test_the_median_must_be_resolved() -> None:
    with pytest.raises(ConfigError):
        draw(Gaussian(sigma="median"), 2, 4, rng_of(0))
