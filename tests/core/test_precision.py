"""Single precision: beside double precision, beside exact distances and dense algebra, and where it overflows."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core import OnlineLearner, create, get_learner, learner_kinds, restore
from okl_core.contract.facade import replay_tolerance
from okl_core.contract.state import from_bytes, to_bytes
from okl_core.errors import DivergedError, UnstableWarning
from okl_core.kernels.kernels import Gaussian
from okl_core.kernels.points import Points
from okl_core.linalg.cholesky import PANEL, Factor
from okl_core.linalg.precision import DOUBLE, SINGLE, FloatType
from okl_core.linalg.symmetric import Symmetric
from okl_core.types import F64
from tests.core.states import dense

KINDS = ("nystrom-ridge", "nystrom-aar", "nystrom-aioli", "pros-n-kons")
BOTH = (DOUBLE, SINGLE)
EPS = {DOUBLE: 1e-13, SINGLE: 1e-5}

STREAM = np.random.default_rng(5)
X = STREAM.uniform(-1.0, 1.0, size=(600, 3))
TRUTH = np.sign(np.sin(3.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * STREAM.normal(size=600))


def made(kind: str, precision: str, **config: Any) -> OnlineLearner:
    kernel = {"kind": "gaussian", "sigma": 0.7}
    return create({"kind": kind, "config": {"kernel": kernel, "precision": precision} | config}, dim=3)


def test_these_are_all_that_have_it() -> None:
    assert {k for k in learner_kinds() if "precision" in get_learner(k).config_type.model_fields} == set(KINDS)


@pytest.mark.parametrize("half_life", [None, 50])
@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_forecasts_as_double_does(kind: str, half_life: int | None) -> None:
    """With the dictionary that double precision has: its points would be others' where a share is between the two bounds."""
    dictionary = {"kind": "ald", "threshold": 0.2}
    double, single = (
        made(kind, precision, dictionary=dictionary, half_life=half_life) for precision in ("double", "single")
    )
    exact, rounded = double.run(X, TRUTH), single.run(X, TRUTH)
    assert single.describe()["dictionary"] == double.describe()["dictionary"] > 30
    off = np.abs(exact.values - rounded.values).max()
    assert 0.0 < off < 2e-3
    assert rounded.losses.mean() == pytest.approx(exact.losses.mean(), rel=1e-4)
    assert off <= replay_tolerance(single.conditioning)
    assert single.nbytes < 0.52 * double.nbytes


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_the_rounds_one_by_one(kind: str) -> None:
    alone, at_once = made(kind, "single"), made(kind, "single")
    values = [alone.update(x, y).forecast.value for x, y in zip(X, TRUTH.tolist(), strict=True)]
    assert np.abs(at_once.run(X, TRUTH).values - values).max() <= 2e-3
    assert alone.describe()["dictionary"] == at_once.describe()["dictionary"]


@pytest.mark.parametrize(("budget", "factor"), [(40, set()), (400, {"space.embedding.kept.L"})])
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_stays_in_single_precision(kind: str, budget: int, factor: set[str]) -> None:
    learner = made(kind, "single", budget=budget)
    learner.run(X[:300], TRUTH[:300])
    arrays = learner.state()
    kept = {name for name, array in arrays.items() if array.dtype == np.float32}
    assert kept == {"space.embedding.points.rows", "space.embedding.L", "space.posterior.P"} | factor
    again = restore(learner.spec, from_bytes(to_bytes(arrays, {}))[0], 3)
    for other in (again, learner.copy(), pickle.loads(pickle.dumps(learner))):
        assert other.state().keys() == arrays.keys()
        assert all(np.array_equal(array, arrays[name]) for name, array in other.state().items())
        assert {array.dtype for array in other.state().values()} == {np.dtype(np.float32), np.dtype(np.float64)}
    for x, y in zip(X[300:], TRUTH[300:].tolist(), strict=True):
        assert again.update(x, y) == learner.update(x, y)


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_is_warned_of_where_a_replay_would_have_too_few_digits(kind: str) -> None:
    near, between, far = ({"kind": "ald", "threshold": threshold} for threshold in (1e-3, 0.05, 0.1))
    with pytest.warns(UnstableWarning, match="threshold of 0.001 .* take 0.1 or more, or double precision"):
        made(kind, "single", dictionary=near)
    if kind != "nystrom-aioli":
        for dictionary in (between, {"kind": "kors"}):
            with pytest.warns(UnstableWarning, match="regularization 0.001 .* take 0.1 or more"):
                made(kind, "single", dictionary=dictionary, regularization=1e-3)
    # Warnings are errors.
    made(kind, "single", dictionary=far, regularization=1e-3)
    made(kind, "single", dictionary=between, regularization=0.1)
    made(kind, "double", dictionary=near, regularization=1e-3)


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
@pytest.mark.parametrize("regularization", [1e30, 3e38, 1e39, 1e100])
@pytest.mark.parametrize("kind", KINDS)
def test_a_huge_regularization_only_keeps_the_learner_at_zero(kind: str, regularization: float, kernel: str) -> None:
    """Its inverse is kept, which may round to 0, and sums with it are in double precision."""
    config = {"precision": "single", "regularization": regularization, "kernel": {"kind": kernel}, "half_life": 8}
    alone, at_once = (create({"kind": kind, "config": config}, dim=3) for _ in range(2))
    values = [alone.update(x, y).forecast.value for x, y in zip(X[:60], TRUTH[:60], strict=True)]
    assert np.abs(values).max() < 1e-25
    assert np.abs(at_once.run(X[:60], TRUTH[:60]).values).max() < 1e-25
    for learner in (alone, at_once):
        assert all(np.isfinite(array).all() for array in learner.state().values())


def test_experts_of_different_precision_share_no_dictionary() -> None:
    experts = [{"kind": "nystrom-ridge", "config": {"precision": p, "clip": 1.0}} for p in ("double", "single")]
    pool = create({"kind": "pool", "config": {"experts": experts, "truth": "labels"}}, dim=3)
    pool.run(X, TRUTH)
    kinds = [array.dtype for name, array in pool.state().items() if name.endswith("points.rows")]
    assert sorted(map(str, kinds)) == ["float32", "float64"]


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from(BOTH))
def test_a_symmetric_matrix_is_the_dense_one(seed: int, size: int, floats: FloatType) -> None:
    rng = np.random.default_rng(seed)
    full, matrix = 2.0 * np.eye(size), Symmetric.diagonal(size, 2.0, floats)
    a, x, Z = rng.normal(), rng.normal(size=size), rng.normal(size=(size, 3))
    matrix.add_outer(a, x)
    matrix.add_gram(-0.5, Z)
    matrix.grow(2, 3.0)
    expected = np.zeros((size + 2, size + 2))
    expected[:size, :size] = full + a * np.outer(x, x) - 0.5 * Z @ Z.T
    expected[range(size, size + 2), range(size, size + 2)] = 3.0
    close = EPS[floats] * np.abs(expected).max()
    again = Symmetric.unpack(matrix.pack(), size + 2)
    for one in (matrix, again, copy.deepcopy(matrix), pickle.loads(pickle.dumps(matrix))):
        assert one.pack().dtype == floats.dtype
        assert np.abs(one.full() - expected).max() <= close
        assert np.abs(one.lower() - np.tril(expected)).max() <= close
        y, Y = rng.normal(size=size + 2), rng.normal(size=(size + 2, 4))
        assert np.abs(one.times(y) - expected @ y).max() <= close * (size + 2) * np.abs(y).max()
        assert np.abs(one.times_columns(Y) - expected @ Y).max() <= close * (size + 2) * np.abs(Y).max()
    copied = copy.deepcopy(matrix)
    copied.add_outer(1.0, np.ones(size + 2))
    assert np.abs(matrix.full() - expected).max() <= close


@pytest.mark.parametrize("size", [2, 3, 6, 7, 31, 100])
@pytest.mark.parametrize("floats", BOTH)
def test_products_have_nothing_of_an_earlier_overflow(floats: FloatType, size: int) -> None:
    """On processors older than Nehalem, OpenBLAS read a number of its buffer that another product had left there."""
    with np.errstate(all="ignore"):
        spoilt = Symmetric(np.full((600, 600), np.nan), floats)
        spoilt.times(np.full(600, np.nan))
        spoilt.times_columns(np.full((600, 3), np.nan))
    ones = Symmetric(np.ones((size, size)), floats)
    assert ones.times(np.ones(size)) == pytest.approx(np.full(size, float(size)))


@pytest.mark.parametrize("size", [1, 20, PANEL + 40])
@pytest.mark.parametrize("floats", BOTH)
def test_a_factor_solves_in_its_precision(floats: FloatType, size: int) -> None:
    rng = np.random.default_rng(size)
    L = np.tril(rng.normal(size=(size, size)) / np.sqrt(size)) + 2.0 * np.eye(size)
    factor = Factor(floats)
    for i in range(size):
        factor.append(L[i, :i], L[i, i])
    b, B = rng.normal(size=size), rng.normal(size=(size, 3))
    for one in (factor, Factor.unpack(factor.pack()), copy.deepcopy(factor)):
        assert one.pack().dtype == floats.dtype
        assert one.nbytes <= factor.nbytes
        np.testing.assert_allclose(dense(one), L, rtol=0.0, atol=EPS[floats])
        assert one.diagonal() == pytest.approx(np.diag(L), abs=EPS[floats])
        assert one.solve(b) == pytest.approx(np.linalg.solve(L, b), abs=10 * EPS[floats])
        assert one.solve(B) == pytest.approx(np.linalg.solve(L, B), abs=10 * EPS[floats])
        assert one.solve_transposed(b) == pytest.approx(np.linalg.solve(L.T, b), abs=10 * EPS[floats])
        assert {x.dtype for x in (one.solve(b), one.solve(B), one.solve_transposed(b))} == {np.dtype(np.float64)}


@given(st.integers(0, 2**32 - 1), st.floats(-4.0, 4.0), st.floats(-2.0, 10.0))
def test_distances_are_the_exact_ones(seed: int, spread: float, offset: float) -> None:
    rng = np.random.default_rng(seed)
    S, x = (10.0**offset + 10.0**spread * rng.normal(size=shape) for shape in ((9, 4), 4))
    points = Points(4, centred=True, floats=SINGLE)
    points.extend(S)
    exact = -0.5 * np.square(S - x).sum(axis=1)
    # Inputs are rounded to 2^-24 of their distance from the origin, which is the first point, or 0 if that is too far.
    rounded = 2.0**-22 * max(np.abs(S - points.origin).max(), np.abs(x - points.origin).max())
    close = 1e-4 + 1e-5 * np.abs(exact) + 4.0 * rounded * (np.sqrt(-2.0 * exact) + rounded)
    assert (np.abs(points.exponents(points.encode(x)) - exact) <= close).all()
    assert (np.abs(points.exponents_block(x[None, :])[:, 0] - exact) <= close).all()
    assert points.exponents(points.encode(x)).dtype == np.float64


@pytest.mark.parametrize("size", [1e16, 1e30, 1e100, 1e150])
def test_a_far_input_is_far(size: float) -> None:
    kernel = Gaussian(sigma=1.0)
    points = kernel.points(2, floats=SINGLE)
    points.extend(np.array([[0.0, 0.0], [1.0, 0.0], [size, -size]]))
    for x in ([0.5, 0.0], [size, -size], [-size, size]):
        row = kernel.row(points, np.array(x))
        expected = [np.exp(-0.125)] * 2 + [0.0] if x[0] == 0.5 else [0.0, 0.0, float(x[0] > 0.0)]
        assert row == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("dictionary", ["kors", "ald"])
@pytest.mark.parametrize(
    ("kernel", "size"),
    [({"kind": "linear"}, 1e16), ({"kind": "linear"}, 1e60), ({"kind": "polynomial", "degree": 6}, 1e7)],
)
def test_inner_products_that_single_precision_cannot_take_are_refused(
    kernel: dict[str, Any], size: float, dictionary: str
) -> None:
    config = {"kernel": kernel, "precision": "single", "regularization": 1e30, "dictionary": {"kind": dictionary}}
    if dictionary == "kors":
        config["dictionary"]["regularization"] = 1e100
    learner = create({"kind": "nystrom-ridge", "config": config}, 2)
    for x in ([1.0, 2.0], [2.0, 1.0]):
        learner.update(x, 1.0)
    before = learner.state()
    for call in (lambda: learner.update([size, 0.0], 1.0), lambda: learner.run(np.full((2, 2), size), np.ones(2))):
        with pytest.raises(DivergedError, match="take double precision"):
            call()
    assert all(np.array_equal(before[name], array) for name, array in learner.state().items())


@pytest.mark.parametrize("alpha", [1e-3, 1.0])
def test_rounding_does_not_add_up(alpha: float) -> None:
    """In 10,000 rounds an inverse of 30 coordinates is rounded as often; the forecasts stay those of double precision."""
    rng = np.random.default_rng(1)
    inputs: F64 = rng.uniform(-1.0, 1.0, size=(10_000, 2))
    truths = np.sin(4.0 * inputs[:, 0]) * inputs[:, 1] + 0.1 * rng.normal(size=10_000)
    kernel, dictionary = {"kind": "gaussian", "sigma": 0.6}, {"kind": "ald", "threshold": 0.15}
    double, single = (
        create(
            {
                "kind": "nystrom-ridge",
                "config": {"kernel": kernel, "dictionary": dictionary, "precision": precision, "regularization": alpha},
            },
            dim=2,
        ).run(inputs, truths)
        for precision in ("double", "single")
    )
    assert single.losses[-5_000:].mean() == pytest.approx(double.losses[-5_000:].mean(), rel=1e-3)
    assert np.abs(single.values - double.values)[-5_000:].max() < 5e-3


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("nystrom-ridge", {"regularization": 1e-8}),
        ("nystrom-ridge", {"regularization": 1e-8, "half_life": 16}),
        ("pros-n-kons", {"regularization": 1e-8, "loss": "squared-hinge"}),
        ("nystrom-ridge", {"dictionary": {"kind": "kors", "regularization": 1e-8}}),
    ],
)
def test_what_single_precision_cannot_take_is_refused(kind: str, config: dict[str, Any]) -> None:
    """The inverse lost its sign and grew until it overflowed; leverage scores kept one point until the budget was used up."""
    made(kind, "double", **config).run(X, TRUTH)
    single = made(kind, "single", **config)
    with pytest.raises(DivergedError, match="or take double precision"):
        single.run(X, TRUTH)
    one_by_one = made(kind, "single", **config)
    with pytest.raises(DivergedError, match="or take double precision"):
        [one_by_one.update(x, y) for x, y in zip(X, TRUTH.tolist(), strict=True)]
    assert np.isfinite(one_by_one.predict(X[0]).value)


@pytest.mark.parametrize("kind", ["gaussian", "matern"])
@pytest.mark.parametrize("size", [12.0, 1e17])
def test_points_of_a_block_are_rounded_as_those_kept(kind: str, size: float) -> None:
    """Among each other they were told apart where among the points kept they are not."""
    rng = np.random.default_rng(2)
    inputs = size * rng.normal(size=(30, 2))[rng.integers(0, 30, 200)]
    truths = np.where(rng.random(200) < 0.5, 1.0, -1.0)
    config = {"kernel": {"kind": kind}, "dictionary": {"kind": "ald"}, "precision": "single", "regularization": 1.0}
    alone, at_once = (create({"kind": "nystrom-ridge", "config": config}, dim=2) for _ in range(2))
    values = [alone.update(x, y).forecast.value for x, y in zip(inputs, truths.tolist(), strict=True)]
    assert np.abs(at_once.run(inputs, truths).values - values).max() < 3e-6
    assert alone.describe()["dictionary"] == at_once.describe()["dictionary"]


@pytest.mark.parametrize("seed", [10, 13, 22, 25])
def test_recorded_rounds_are_replayed_in_blocks(seed: int) -> None:
    """With the same choices they differed by 0.1: a coordinate of a hundred-thousandth is mostly rounding."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(400, 2))
    truths = np.sign(inputs[:, 0] + 0.2 * rng.normal(size=400))
    config = {"precision": "single", "regularization": 1.0, "half_life": 300, "clip": 1.0}
    spec = {"kind": "pros-n-kons", "config": config | {"dictionary": {"kind": "kors", "oversampling": 2.0}}}
    alone, replayed = create(spec, 2), create(spec, 2)
    values, choices = [], []
    for x, y in zip(inputs, truths.tolist(), strict=True):
        played = alone.play(x, y)
        alone.learn(played)
        values.append(played.forecast.value)
        choices.append(played.choices)
    assert np.abs(replayed.run(inputs, truths, choices=b"".join(choices)).values - values).max() < 1e-3


def test_an_inverse_beyond_single_precision_is_an_overflow() -> None:
    config = {
        "kernel": {"kind": "linear"},
        "regularization": 1e-40,
        "dictionary": {"kind": "ald"},
        "precision": "single",
    }
    learner = create({"kind": "nystrom-ridge", "config": config}, dim=1)
    learner.update([1e-20], 1.0)
    with pytest.raises(DivergedError, match="overflows"):
        learner.update([1e-20], 1.0)


@pytest.mark.parametrize("rounds", [5, 400])
def test_truths_whose_weights_overflow_make_the_conditioning_infinite_without_a_warning(rounds: int) -> None:
    """In one panel of L, and in several, where an infinite weight meets others."""
    kernel = {"kind": "gaussian", "sigma": 0.1}
    learner = create({"kind": "nystrom-ridge", "config": {"kernel": kernel, "precision": "single"}}, 3)
    inputs = np.random.default_rng(0).normal(size=(rounds, 3))
    for x in inputs:
        learner.update(x, 1e60)
    assert learner.describe()["dictionary"] > PANEL or rounds == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert learner.conditioning == np.inf


def test_a_right_hand_side_beyond_single_precision_is_infinite_without_a_warning() -> None:
    factor = Factor(SINGLE)
    factor.append(np.empty(0), 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for solved in (factor.solve(np.array([1e60])), factor.solve_transposed(np.array([1e60]))):
            assert solved == np.inf
        assert factor.solve(np.array([[1e60]])) == np.inf
