"""From what a client sends to what a learner takes, and back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core.types import REALS
from service.errors import InvalidInput, WrongFeatures, WrongTruth
from service.inputs import Layout, Scaling, Truths, pointer
from service.schemas import Feature

finite = st.floats(-1e6, 1e6)


@given(st.dictionaries(st.text(min_size=1, max_size=5), finite | st.booleans(), min_size=1), st.randoms())
def test_the_order_of_keys_does_not_matter(x: dict[str, float | bool], shuffler: object) -> None:
    layout = Layout.infer(x)
    names = list(x)
    shuffler.shuffle(names)  # type: ignore[attr-defined]
    assert Layout.infer({name: x[name] for name in names}) == layout
    expected = [float(x[name]) for name in sorted(x)]
    assert layout.vector({name: x[name] for name in names}).tolist() == expected


def test_a_category_is_one_input_a_value() -> None:
    layout = Layout.of_features([Feature(name="a", type="category", categories=["x", "y", "z"]), Feature(name="b")])
    assert layout.dim == 4
    assert layout.vector({"b": 2.0, "a": "y"}).tolist() == [0.0, 1.0, 0.0, 2.0]


def test_a_text_cannot_be_inferred() -> None:
    with pytest.raises(WrongFeatures, match="/x/colour"):
        Layout.infer({"colour": "red"})


@pytest.mark.parametrize(
    ("name", "expected"), [("a", "/x/a"), ("a/b", "/x/a~1b"), ("a~b", "/x/a~0b"), ("~1", "/x/~01")]
)
def test_pointers_are_those_of_rfc_6901(name: str, expected: str) -> None:
    assert pointer(name) == expected


def test_scaling_takes_the_ranges_to_the_unit_interval() -> None:
    X = np.array([[0.0, 5.0, 7.0], [10.0, 6.0, 7.0]])
    scaling = Scaling.of(X)
    assert scaling(X).tolist() == [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    assert scaling(np.array([20.0, 4.0, 9.0])).tolist() == [2.0, -1.0, 2.0]


@given(st.integers(1, 6), st.floats(0.1, 10.0), st.integers(0, 2**32 - 1))
def test_with_a_radius_ranges_go_into_the_ball(d: int, radius: float, seed: int) -> None:
    """The corners of the box to the sphere, its middle to 0; outside it goes on in a straight line."""
    rng = np.random.default_rng(seed)
    low = rng.uniform(-5.0, 5.0, d)
    high = low + rng.uniform(0.1, 9.0, d)
    scaling = Scaling(low, high, radius)
    corners = np.where(rng.random((8, d)) < 0.5, low, high)
    np.testing.assert_allclose(np.linalg.norm(scaling(corners), axis=1), radius, rtol=1e-12)
    np.testing.assert_allclose(scaling((low + high) / 2.0), 0.0, atol=1e-12)
    np.testing.assert_allclose(scaling(2.0 * high - low), 3.0 * scaling(high), rtol=1e-9)
    inside = rng.uniform(low, high, (20, d))
    assert (np.linalg.norm(scaling(inside), axis=1) <= radius * (1.0 + 1e-12)).all()


def test_with_a_radius_an_input_that_is_constant_is_only_moved() -> None:
    X = np.array([[0.0, 7.0], [10.0, 7.0]])
    scaling = Scaling.of(X, math.sqrt(2.0))
    assert scaling(X).tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert scaling(np.array([5.0, 9.0])).tolist() == [0.0, 2.0]


def test_a_scale_without_width_never_warns() -> None:
    """What overflows becomes infinite, which a learner refuses; it is no warning of numpy's."""
    scaling = Scaling(np.array([0.0]), np.array([5e-324]))
    assert math.isinf(scaling(np.array([1.0]))[0])


ranges = st.tuples(finite, st.floats(1e-3, 1e6)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(ranges, st.floats(0.0, 1.0), st.sampled_from([0.5, 1.0, 3.0, math.inf]))
def test_a_range_goes_there_and_back(y_range: tuple[float, float], share: float, largest: float) -> None:
    low, high = y_range
    y = min(high, low + share * (high - low))
    truths = Truths("real", None, y_range, (-largest, largest))
    inner = truths.to_learner(y)
    half = largest if math.isfinite(largest) else 1.0
    assert abs(inner) <= half * (1.0 + 1e-12)
    assert truths.from_learner(inner) == pytest.approx(y, rel=1e-9, abs=1e-9 * (high - low))
    assert truths.from_learner(inner + 1.0) - truths.from_learner(inner) == pytest.approx(truths.unit, rel=1e-6)


@given(ranges, st.sampled_from([(-0.5, 0.5), (-7.3, 7.3), (0.0, 1.0), (0.1, 0.4)]))
def test_the_ends_of_a_range_are_truths(y_range: tuple[float, float], taken: tuple[float, float]) -> None:
    """Rounding may not put an end outside what the learner takes."""
    truths = Truths("real", None, y_range, taken)
    assert (truths.to_learner(y_range[0]), truths.to_learner(y_range[1])) == taken


def test_without_a_range_the_bound_is_told() -> None:
    with pytest.raises(WrongTruth, match=r"from -1\.0 to 1\.0"):
        Truths("real", None, None, (-1.0, 1.0)).to_learner(1.5)


@pytest.mark.parametrize("y", [True, "1", 0, 1.5])
def test_only_signs_without_labels(y: object) -> None:
    with pytest.raises(InvalidInput):
        Truths("binary", None, None, REALS).to_learner(y)  # type: ignore[arg-type]


def test_a_score_of_zero_is_the_positive_label() -> None:
    truths = Truths("binary", ("no", "yes"), None, REALS)
    assert [truths.label(value) for value in (-1e-300, -0.0, 0.0, 1.0)] == ["no", "yes", "yes", "yes"]
