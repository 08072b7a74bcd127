"""Kernels of a distance in a metric: against the formula, through every learner that keeps points or frequencies, learned."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pydantic import TypeAdapter, ValidationError

from okl_core import Gaussian, Kernel, Matern, create, resolve
from okl_core.contract.checks import check_learner
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, ShapeError, StateFormatError
from okl_core.kernels.fourier import draw, features
from okl_core.kernels.points import Points
from okl_core.metrics.gradient_outer_product import gradient_outer_product
from okl_core.metrics.kernel_metric import POINTS, learned_kernel_metric, matrix_root
from okl_core.types import F64

M = [[1.0, 0.3, 0.0], [0.3, 0.5, 0.1], [0.0, 0.1, 0.05]]

rows = hnp.arrays(np.float64, (5, 3), elements=st.floats(-5.0, 5.0, allow_subnormal=False))


def distance(x: F64, z: F64) -> float:
    return math.sqrt((x - z) @ np.array(M) @ (x - z))


@given(X=rows)
def test_the_kernel_is_the_formula(X: F64) -> None:
    gaussian, matern = Gaussian(sigma=0.7, metric=M), Matern(sigma=1.3, nu=1.5, metric=M)
    points = gaussian.points(3)
    for x in X:
        points.append(x)
    for j, x in enumerate(X):
        expected = [math.exp(-(distance(s, x) ** 2) / (2.0 * 0.49)) for s in X]
        assert gaussian.row(points, x) == pytest.approx(expected, rel=1e-10, abs=1e-12)
        assert gaussian.block(X, X)[:, j] == pytest.approx(expected, rel=1e-10, abs=1e-12)
        r = [math.sqrt(3.0) * distance(s, x) / 1.3 for s in X]
        assert matern.row(X, x) == pytest.approx([(1.0 + a) * math.exp(-a) for a in r], abs=1e-6)


def test_points_come_back_from_their_state_and_their_rows() -> None:
    X = np.random.default_rng(0).normal(size=(20, 3)) + 100.0
    points = Gaussian(metric=M).points(3)
    points.extend(X)
    assert points.coordinates() == pytest.approx(X, abs=1e-10)
    arrays = points.pack()
    again = Points.unpack(arrays)
    again.append(X[0])
    assert again.encoded(20) == pytest.approx(points.encoded(0))
    with pytest.raises(StateFormatError, match="metric"):
        Points.unpack(arrays | {"root": np.eye(2)})


@pytest.mark.parametrize("kernel", [Gaussian(sigma=0.7, metric=M), Matern(sigma=0.9, nu=2.5, metric=M)])
def test_fourier_features_are_those_of_the_metric(kernel: Any) -> None:
    rng = RoundRng(3)
    rng.begin()
    rng.at(1)
    X = np.random.default_rng(1).uniform(-1.0, 1.0, (8, 3))
    Z = features(draw(kernel, 3, 40_000, rng), X)
    estimates = Z @ Z.T
    assert estimates == pytest.approx(kernel.gram(X), abs=0.02)
    assert np.abs(estimates - Gaussian(sigma=kernel.sigma).gram(X)).max() > 0.1


@pytest.mark.parametrize(
    "kind", ["nogd", "pomdr", "skegd", "bao2ks", "kernel-ogd", "fogd", "fourier-aioli", "pros-n-kons"]
)
def test_learners_take_it(kind: str) -> None:
    check_learner(kind, {"kernel": {"kind": "gaussian", "metric": M}}, dim=3, rounds=60)


@pytest.mark.parametrize("kind", ["kons", "fogd", "fourier-aioli", "nystrom-ridge"])
def test_one_of_another_dimension_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match="a metric for 3 inputs, the learner has 2") as caught:
        create({"kind": kind, "config": {"kernel": {"kind": "gaussian", "metric": M}}}, dim=2)
    assert caught.value.errors[0][0] == ("config", "kernel", "metric")


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        ([[1.0, 0.0], [0.5, 1.0]], "not symmetric"),
        ([[1.0, 2.0], [2.0, 1.0]], "positive definite"),
        ([[1.0, 0.0]], "rows of as many numbers"),
        ([[0.0]], "positive definite"),
        ([], "at least 1"),
    ],
    ids=str,
)
def test_what_is_no_metric_is_refused(metric: list[list[float]], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        TypeAdapter(Kernel).validate_python({"kind": "gaussian", "metric": metric})


def test_what_is_asymmetric_by_rounding_is_taken() -> None:
    given = np.array(M)
    given[0, 1] += 6e-17
    assert given[0, 1] != given[1, 0]
    kernel = Gaussian(sigma=0.7, metric=given.tolist())
    X = np.random.default_rng(0).normal(size=(10, 3))
    np.testing.assert_allclose(kernel.gram(X), Gaussian(sigma=0.7, metric=M).gram(X), rtol=0.0, atol=1e-12)
    given[0, 1] += 1e-11
    with pytest.raises(ValidationError, match="not symmetric"):
        Gaussian(metric=given.tolist())


def test_the_root() -> None:
    root = matrix_root(M)
    assert root @ root == pytest.approx(np.array(M))
    assert (root == root.T).all()


class TestLearned:
    SPEC: dict[str, Any] = {  # noqa: RUF012
        "kind": "nystrom-ridge",
        "config": {"kernel": {"kind": "gaussian", "sigma": "median", "metric": "learned"}},
    }

    @staticmethod
    def stream(n: int, d: int = 8) -> tuple[F64, F64]:
        rng = np.random.default_rng(5)
        X = rng.uniform(0.0, 1.0, (n, d))
        return X, np.sin(6.0 * X[:, 1]) + 0.05 * rng.normal(size=n)

    def test_it_is_found_from_inputs_and_truths(self) -> None:
        X, y = self.stream(800)
        spec = resolve(self.SPEC, X, y)
        kernel = spec.config["kernel"]
        learned = np.array(kernel["metric"])
        assert np.linalg.eigh(learned)[1][1, -1] ** 2 > 0.9
        assert resolve(spec, X[:2]) == spec
        in_metric = X @ matrix_root(learned)
        assert kernel["sigma"] == pytest.approx(Gaussian().median_distance(in_metric))

    def test_it_is_the_root_of_the_outer_product_of_gradients(self) -> None:
        X, y = self.stream(300, 3)
        # Half of the volume of a ball is within 2^(-1/3) of its radius.
        radius = 2.0 ** (1.0 / 3.0) * np.median(np.linalg.norm(X - np.median(X, axis=0), axis=1))
        G = gradient_outer_product(X / radius, y, points=POINTS)
        learned = learned_kernel_metric(X, y)
        expected = G / np.linalg.eigvalsh(G)[-1] + np.eye(3) / len(y)
        np.testing.assert_allclose(learned @ learned, expected, rtol=0.0, atol=1e-9)

    def test_it_helps_where_one_direction_counts(self) -> None:
        X, y = self.stream(3000)
        errors = []
        for metric in ("learned", None):
            kernel = self.SPEC["config"]["kernel"] | {"metric": metric}
            spec = resolve(self.SPEC | {"config": {"kernel": kernel}}, X[:800], y[:800])
            values = create(spec, X.shape[1]).run(X, y).values
            errors.append(np.mean((values - y)[1000:] ** 2))
        assert errors[0] < 0.3 * errors[1]

    def test_outliers_do_not_hide_it(self) -> None:
        X, y = self.stream(600, 5)
        X[::100] *= 20.0
        assert np.linalg.eigh(learned_kernel_metric(X, y))[1][1, -1] ** 2 > 0.9

    def test_most_inputs_may_be_one(self) -> None:
        X, y = self.stream(600, 3)
        X[200:], y[200:] = 0.5, np.sin(3.0)
        assert np.linalg.eigh(learned_kernel_metric(X, y))[1][1, -1] ** 2 > 0.9

    def test_what_does_not_vary_has_the_identity(self) -> None:
        X, _ = self.stream(50, 2)
        assert learned_kernel_metric(X, np.ones(50)) == pytest.approx(np.eye(2))
        assert learned_kernel_metric(np.ones((50, 2)), np.arange(50.0)) == pytest.approx(np.eye(2))

    @pytest.mark.parametrize("size", [1e-300, 1e-12, 1e150, 1e300])
    def test_the_size_of_the_truths_does_not_matter(self, size: float) -> None:
        X, y = self.stream(200, 3)
        assert learned_kernel_metric(X, size * y) == pytest.approx(learned_kernel_metric(X, y), abs=1e-9)

    def test_it_needs_truths(self) -> None:
        with pytest.raises(ShapeError, match="truths"):
            resolve(self.SPEC, self.stream(10)[0])
        with pytest.raises(ConfigError, match='metric "learned" must be resolved'):
            create(self.SPEC, 8)

    def test_of_classes_it_is_that_of_all_of_them(self) -> None:
        X, _ = self.stream(600, 4)
        y = np.digitize(X[:, 2], [0.3, 0.6]).astype(np.float64)
        member = {"kind": "nystrom-aioli", "config": {"kernel": self.SPEC["config"]["kernel"]}}
        spec = resolve({"kind": "one-vs-rest", "config": {"classes": 3, "member": member}}, X, y)
        learned = np.array(spec.config["member"]["config"]["kernel"]["metric"])
        assert np.linalg.eigh(learned)[1][2, -1] ** 2 > 0.9
        # Classes are names: to number them otherwise changes nothing.
        other = resolve({"kind": "one-vs-rest", "config": {"classes": 3, "member": member}}, X, (y + 1.0) % 3.0)
        assert np.array(other.config["member"]["config"]["kernel"]["metric"]) == pytest.approx(learned, abs=1e-9)
