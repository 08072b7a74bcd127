"""Kernels against their formulas and their contract, and the points that make them fast against plain differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pydantic import TypeAdapter, ValidationError
from scipy.spatial.distance import cdist

from okl_core import Gaussian, Kernel, Laplacian, Linear, Matern, Polynomial, create, get_learner, learner_kinds
from okl_core.errors import ConfigError, DivergedError, StateFormatError
from okl_core.kernels.kernel_checks import check_kernel
from okl_core.kernels.kernels import LARGEST, MEDIAN_SAMPLE
from okl_core.kernels.points import Points
from tests.oracles import kernels as oracle

CASES: list[tuple[Any, Callable[[Any, Any], float]]] = [
    (Gaussian(sigma=0.7), lambda x, z: oracle.gaussian(x, z, 0.7)),
    (Laplacian(sigma=1.3), lambda x, z: oracle.laplacian(x, z, 1.3)),
    (Matern(sigma=0.9, nu=1.5), lambda x, z: oracle.matern(x, z, 0.9, 1.5)),
    (Matern(sigma=2.1, nu=2.5), lambda x, z: oracle.matern(x, z, 2.1, 2.5)),
    (Linear(), oracle.linear),
    (Polynomial(degree=3, offset=0.5), lambda x, z: oracle.polynomial(x, z, 3, 0.5)),
    (Polynomial(degree=1, offset=0.0), lambda x, z: oracle.polynomial(x, z, 1, 0.0)),
]
STATIONARY = [Gaussian(sigma=0.7), Laplacian(sigma=1.3), Matern(sigma=0.9, nu=1.5), Matern(sigma=2.1, nu=2.5)]

every_kernel = pytest.mark.parametrize("kernel", [kernel for kernel, _ in CASES], ids=str)
every_stationary_kernel = pytest.mark.parametrize("kernel", STATIONARY, ids=str)

coordinates = st.floats(-5.0, 5.0, allow_subnormal=False)


def inputs(rows: st.SearchStrategy[int], dim: int = 3) -> st.SearchStrategy[Any]:
    return rows.flatmap(lambda n: hnp.arrays(np.float64, (n, dim), elements=coordinates))


@pytest.mark.parametrize(("kernel", "formula"), CASES)
@given(S=inputs(st.integers(1, 6)), X=inputs(st.integers(1, 4)))
def test_block_is_the_formula(kernel: Any, formula: Callable[[Any, Any], float], S: Any, X: Any) -> None:
    expected = [[formula(s.tolist(), x.tolist()) for x in X] for s in S]
    # Near points lose half of the digits in the square root of a squared distance: hence Matern's tolerance.
    tolerance = 1e-6 if isinstance(kernel, Matern) else 1e-12
    np.testing.assert_allclose(kernel.block(S, X), expected, rtol=tolerance, atol=tolerance)


@every_kernel
def test_the_contract(kernel: Any) -> None:
    check_kernel(kernel)


@every_kernel
@given(X=inputs(st.integers(1, 8)))
def test_row_block_gram_and_diagonal_agree(kernel: Any, X: Any) -> None:
    points = kernel.points(3)
    points.extend(X)
    block = kernel.block(points, X)
    scale = max(1.0, np.abs(block).max())
    tolerance = {"rtol": 1e-12, "atol": (1e-7 if isinstance(kernel, Matern) else 1e-12) * scale}
    for j, x in enumerate(X):
        np.testing.assert_allclose(kernel.row(points, x), block[:, j], **tolerance)
    np.testing.assert_allclose(kernel.gram(X), block, **tolerance)
    assert np.linalg.eigvalsh(kernel.gram(X)).min() >= -1e-7 * scale


@pytest.mark.parametrize("sigma", [1e-3, 1.0])
@every_stationary_kernel
def test_stationary_kernels_are_at_most_one_wherever_the_points_are(kernel: Any, sigma: float) -> None:
    kernel = kernel.model_copy(update={"sigma": sigma})
    rng = np.random.default_rng(0)
    points = kernel.points(3)
    points.append(np.zeros(3))
    far = np.vstack((1e8 * rng.normal(size=(50, 3)), 1e153 * rng.uniform(-1.0, 1.0, (5, 3))))
    points.extend(far)
    assert kernel.block(points, far).max() <= 1.0
    assert max(kernel.row(points, x).max() for x in far) <= 1.0
    assert np.isfinite(kernel.block(points, far)).all()


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(), Polynomial(degree=16)], ids=str)
def test_a_kernel_beyond_the_largest_number_is_refused(kernel: Any) -> None:
    x = np.full((1, 3), LARGEST**0.5 / 2.0) if isinstance(kernel, Linear) else np.ones((1, 3))
    assert kernel.diag(x)[0] == kernel.at(x[0]) < LARGEST
    for factor in (3.0 * LARGEST ** (0.5 / getattr(kernel, "degree", 1)), 1e120, 1e150, 1e300):
        far = np.vstack((np.ones((2, 3)), np.full((1, 3), factor)))
        for ask in (kernel.diag, kernel.gram, lambda far: kernel.at(far[2])):
            with pytest.raises(DivergedError, match="scale the inputs down"):
                ask(far)


@pytest.mark.parametrize(
    "kind", [kind for kind in learner_kinds() if "kernel" in get_learner(kind).config_type.model_fields]
)
@pytest.mark.parametrize("size", [1e40, 1e76, 1e78, 1e120, 1e150])
def test_a_learner_refuses_what_overflows_without_a_warning(kind: str, size: float) -> None:
    kernels: list[dict[str, Any]] = [{"kind": "polynomial"}, {"kind": "polynomial", "degree": 16}]
    if "frequencies" in get_learner(kind).config_type.model_fields:
        kernels = [{"kind": "matern", "sigma": 1e-3}]
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (30, 3))
    y = np.where(X[:, 0] >= 0.0, 1.0, -1.0)
    X[20, 0] *= size
    for kernel in kernels:
        learner = create({"kind": kind, "config": {"kernel": kernel}}, 3)
        learner.run(X[:20], y[:20])
        for call in (learner.update, learner.run):
            before = learner.state()
            try:
                call(*((X[20], y[20]) if call == learner.update else (X[20:], y[20:])))
            except DivergedError:
                assert all(np.array_equal(before[name], array) for name, array in learner.state().items())


@pytest.mark.parametrize("bank", [False, True])
@pytest.mark.parametrize("kind", ["pros-n-kons", "nystrom-ridge", "nystrom-aioli"])
def test_a_forecast_for_an_input_that_overflows_is_refused_beside_points_without_a_coordinate(
    kind: str, bank: bool
) -> None:
    """The kernel's value is infinite, and the weight of such a point is 0."""
    config: dict[str, Any] = {"kernel": {"kind": "polynomial", "degree": 3}}
    if kind == "pros-n-kons":
        config["step"] = "adaptive"
    spec: dict[str, Any] = {"kind": kind, "config": config}
    if bank:
        spec = {
            "kind": "pool",
            "config": {"experts": [spec, {"kind": kind, "config": config | {"regularization": 3.0}}]},
        }
    learner = create(spec, 1)
    rng = np.random.default_rng(0)
    for _ in range(30):
        learner.update(rng.normal(size=1), 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in (1e103, -1e120):
            with pytest.raises(DivergedError, match="scale the inputs down"):
                learner.predict(np.array([x]))


def test_a_copy_does_not_keep_what_its_original_has_computed() -> None:
    X = np.random.default_rng(0).normal(size=(4, 2))
    kernel, other = Gaussian(metric=[[1.0, 0.5], [0.5, 1.0]]), [[4.0, 0.0], [0.0, 0.1]]
    kernel.gram(X)
    copied = kernel.model_copy(update={"metric": other})
    np.testing.assert_array_equal(copied.gram(X), Gaussian(metric=other).gram(X))
    assert copied.model_copy() == copied == Gaussian(metric=other)
    np.testing.assert_array_equal(kernel.model_copy(deep=True).gram(X), kernel.gram(X))


@every_stationary_kernel
def test_a_common_offset_costs_no_accuracy(kernel: Any) -> None:
    rng = np.random.default_rng(1)
    # Multiples of 2^-20 that differ by less than 1 are exact at 1e9, and so are their differences.
    X = np.round(rng.uniform(size=(40, 4)) * 2**20) / 2**20
    expected = kernel.gram(X)
    np.testing.assert_allclose(kernel.gram(X + 1e9), expected, atol=1e-7 if isinstance(kernel, Matern) else 1e-12)


@pytest.mark.parametrize(("sigma", "offset"), [(1e-3, 1.6e9), (1e-150, 0.0), (1e-150, 3.3)])
@pytest.mark.parametrize("kernel", [Gaussian, Laplacian])
def test_rows_and_blocks_round_their_inputs_alike(
    kernel: type[Gaussian | Laplacian], sigma: float, offset: float
) -> None:
    rng = np.random.default_rng(1)
    X = np.repeat(rng.normal(size=(40, 2)) * 1e-3 + offset, 2, axis=0)
    K, points = kernel(sigma=sigma), kernel(sigma=sigma).points(2)
    points.extend(X)
    rows = np.array([K.row(points, x) for x in X])
    assert K.block(points, X) == pytest.approx(rows.T, abs=1e-11)
    # A duplicate is at no distance, however short the unit of length is.
    assert (np.diagonal(rows, 1)[::2] >= 1.0 - 1e-11).all()
    one_by_one, as_a_block = (create({"kind": "kernel-ogd", "config": {"kernel": K.model_dump()}}, 2) for _ in range(2))
    y = rng.choice([-1.0, 1.0], 80)
    values = [one_by_one.update(x, truth).forecast.value for x, truth in zip(X, y.tolist(), strict=True)]
    assert as_a_block.run(X, y).values == pytest.approx(np.array(values), abs=1e-9)


@pytest.mark.parametrize("size", [1e3, 1e6, 1e10, 1e20, 1e100, 1e150])
@pytest.mark.parametrize("at", [0, 5])
def test_an_outlier_costs_the_other_distances_no_accuracy(at: int, size: float) -> None:
    X = np.random.default_rng(2).normal(size=(12, 3))
    X[at] *= size
    X[8] = X[at] * (1.0 + 1e-9)
    X[9:] += 1e4
    points = Points(3, centred=True, unit=0.7)
    points.extend(X)
    expected = np.exp(-0.5 * (cdist(X, X) / 0.7) ** 2)
    np.testing.assert_allclose(np.exp(points.exponents_block(X)), expected, rtol=1e-5, atol=1e-9)
    rows = np.array([points.exponents(points.encode(x)) for x in X])
    np.testing.assert_allclose(np.exp(rows), expected, rtol=1e-5, atol=1e-9)


@every_kernel
def test_points_grow_shrink_and_come_back(kernel: Any) -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(100, 5))
    grown = kernel.points(5, capacity=1)
    for x in X:
        grown.append(x)
    assert len(grown) == 100
    np.testing.assert_allclose(grown.coordinates(), X, atol=1e-14)
    grown.truncate(30)
    np.testing.assert_allclose(kernel.row(grown, X[50]), kernel.row(X[:30], X[50]), rtol=1e-12)
    again = Points.unpack(grown.pack())
    np.testing.assert_array_equal(kernel.row(again, X[50]), kernel.row(grown, X[50]))
    for points in (grown, again):
        points.extend(X[30:60])
    np.testing.assert_array_equal(kernel.block(again, X), kernel.block(grown, X))
    assert again.nbytes >= 60 * 5 * 8


@every_kernel
def test_points_can_be_replaced_and_selected(kernel: Any) -> None:
    X = np.random.default_rng(3).normal(size=(12, 4))
    points = kernel.points(4)
    points.extend(X[:10])
    np.testing.assert_allclose(points.decode(points.encode(X[10])), X[10], rtol=1e-14, atol=1e-14)
    points.replace(3, points.encode(X[10]))
    points.replace_block(np.array([9]), X[11:])
    np.testing.assert_allclose(points.encoded(9), points.encode(X[11]), rtol=1e-14)
    order = np.array([9, 3, 0])
    points.select(order)
    np.testing.assert_allclose(kernel.row(points, X[5]), kernel.row(X[[11, 10, 0]], X[5]), rtol=1e-12)


def test_empty_points() -> None:
    for kernel, _ in CASES:
        points = Points.unpack(kernel.points(3).pack())
        assert len(points) == 0
        assert kernel.row(points, np.ones(3)).shape == (0,)
        assert kernel.block(points, np.ones((2, 3))).shape == (0, 2)
        points.append(np.ones(3))
        assert len(points) == 1


def test_points_of_another_shape_are_refused() -> None:
    arrays = Points.of(np.ones((2, 3)), centred=True).pack()
    with pytest.raises(StateFormatError):
        Points.unpack({**arrays, "origin": np.zeros(5)})


class TestMedianHeuristic:
    def test_it_is_the_median_of_the_distances(self) -> None:
        X = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0], [6.0, 8.0]])
        assert Gaussian().median_distance(X) == 5.0
        assert Laplacian().median_distance(X) == 7.0

    def test_equal_rows_give_one(self) -> None:
        assert Matern().median_distance(np.ones((5, 2))) == 1.0
        assert Matern().median_distance(np.ones((1, 2))) == 1.0

    def test_long_streams_are_sampled(self) -> None:
        X = np.random.default_rng(0).normal(size=(20 * MEDIAN_SAMPLE, 1))
        # |x - z| of two standard normals has the median sqrt(2) * 0.6745.
        assert Gaussian().median_distance(X) == pytest.approx(np.sqrt(2.0) * 0.6745, rel=0.03)

    def test_an_unresolved_sigma_is_refused_where_it_would_be_used(self) -> None:
        kernel = Gaussian(sigma="median")
        assert kernel.waiting() == [(("sigma",), "median")]
        assert Gaussian(sigma=2.0).waiting() == Linear().waiting() == []
        with pytest.raises(ConfigError) as caught:
            kernel.row(np.ones((2, 2)), np.ones(2))
        assert caught.value.errors[0][0] == ("kernel", "sigma")


@pytest.mark.parametrize(
    "config",
    [
        {"kind": "gaussian", "sigma": 0.0},
        {"kind": "gaussian", "sigma": "mean"},
        {"kind": "gaussian", "sigma": float("inf")},
        {"kind": "gaussian", "width": 1.0},
        {"kind": "matern", "nu": 3.5},
        {"kind": "polynomial", "degree": 0},
        {"kind": "polynomial", "offset": -1.0},
        {"kind": "sigmoid"},
        {},
    ],
    ids=str,
)
def test_kernels_that_do_not_validate(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Kernel).validate_python(config)


@every_kernel
def test_kernels_go_through_json(kernel: Any) -> None:
    adapter = TypeAdapter[Any](Kernel)
    assert adapter.validate_json(kernel.model_dump_json()) == adapter.validate_python(kernel) == kernel
