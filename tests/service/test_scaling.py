"""The scaling of inputs: into the unit interval, or into the ball that a learner asks for."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from service.session.scaling import Scaling


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
