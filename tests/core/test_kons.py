"""KONS against the same algorithm in an explicit feature space, its regret bound, and the corners of its inputs."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from okl_core import OnlineLearner, create, restore
from okl_core.errors import ConfigError, DivergedError, LabelError
from okl_core.kernels.kernels import Gaussian
from okl_core.losses import LOSSES
from okl_core.second_order.second_order import SecondOrderRound
from tests.core.newton_streams import (
    KERNELS,
    METHODS,
    ROUNDS,
    STEPS,
    STREAMS,
    Spec,
    comparators,
    definition,
    explicit,
    play_all,
    stream_for,
)
from tests.oracles.kons import batch_moments, online_newton


def kons(loss: str, step: str | float, kernel: Spec, C: float = 1.0, alpha: float = 1.0, dim: int = 2) -> OnlineLearner:
    config = {"loss": loss, "step": step, "kernel": kernel, "clip": C, "regularization": alpha}
    return create({"kind": "kons", "config": config}, dim)


@pytest.mark.pairs
@pytest.mark.parametrize("alpha", [1.0, 1e-5])
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(("loss", "step"), METHODS)
def test_it_is_the_online_newton_step_of_the_feature_space(
    loss: str, step: str | float, stream: str, alpha: float
) -> None:
    # Every method meets every stream; going round the kernels, both meet every kernel.
    kernel = list(KERNELS.values())[(METHODS.index((loss, step)) + list(STREAMS).index(stream)) % len(KERNELS)]
    C = 1.0 if alpha == 1.0 else 1.5
    X, y = stream_for(loss, stream, C=C)
    values, choices = play_all(kons(loss, step, kernel, C, alpha), X, y)
    Phi = explicit(kernel, X)
    expected = online_newton(Phi, y, C, alpha, *definition(loss, step, C, choices))
    # A factorisation of order t has the backward error of t units of roundoff: its condition and the projections magnify it.
    kappa = (Phi * Phi).sum(axis=1).astype(np.float64)
    condition = 1.0 + np.cumsum(np.array(expected.weights) * kappa) / alpha
    tolerance = np.arange(1, ROUNDS + 1) * np.finfo(np.float64).eps * (condition + np.array(expected.limit))
    assert tolerance[-1] < (1e-9 if alpha == 1.0 else 1e-4)
    assert (np.abs(values - expected.values) <= tolerance).all()
    at_once = kons(loss, step, kernel, C, alpha).run(X, y, choices=choices)
    assert (np.abs(at_once.values - expected.values) <= tolerance).all()


@pytest.mark.pairs
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(("loss", "step"), METHODS)
def test_its_moments_are_those_of_the_batch(loss: str, step: str | float, stream: str) -> None:
    # A Gaussian has no finite feature space: compare with the closed form, on the weights and coefficients played.
    alpha, kernel = 0.1, Gaussian(sigma=0.5)
    X, y = stream_for(loss, stream, n=80)
    K = kernel.gram(X)
    learner = kons(loss, step, {"kind": "gaussian", "sigma": 0.5}, alpha=alpha)
    w, c = np.zeros(len(y)), np.zeros(len(y))
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True)):
        m, q = batch_moments(K[:t, :t], K[:t, t], 1.0, w[:t], c[:t], alpha)
        played = learner.play(x, truth)
        assert isinstance(played, SecondOrderRound)
        assert played.turn.moments.m == pytest.approx(m, rel=1e-9, abs=1e-9)
        assert played.turn.moments.q == pytest.approx(q, rel=1e-9, abs=1e-9)
        learner.learn(played)
        value, w[t] = played.forecast.value, played.turn.decision.w
        c[t] = w[t] * value - played.turn.decision.g - (m - value) / q


@pytest.mark.pairs
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(("loss", "step"), METHODS)
def test_regret_stays_within_its_bound(loss: str, step: str | float, stream: str) -> None:
    C, alpha, kernel = 1.0, 0.3, KERNELS["quadratic"]
    X, y = stream_for(loss, stream, n=200)
    learner = kons(loss, step, kernel, C, alpha)
    values, choices = play_all(learner, X, y)
    seen = learner.describe()
    Phi = explicit(kernel, X).astype(np.float64)
    expected = online_newton(explicit(kernel, X), y, C, alpha, *definition(loss, step, C, choices))
    g, w, q = (np.array(kept) for kept in (expected.gradients, expected.weights, expected.variances))
    sigma = LOSSES[loss].curvature(C)
    assert seen["loss"] == pytest.approx(LOSSES[loss].values(values, y).sum())
    assert seen["bound_gradient"] == pytest.approx(0.5 * (g**2 * q / (1.0 + w * q)).sum())
    assert seen["log_det"] == pytest.approx(np.log1p(w * q).sum())
    Gram = np.eye(Phi.shape[1]) + Phi.T @ (w[:, None] * Phi) / alpha
    assert seen["log_det"] == pytest.approx(np.linalg.slogdet(Gram)[1])
    if step == "curvature":
        assert seen["bound_gradient"] == pytest.approx((w * q / (1.0 + w * q)).sum() / (2.0 * sigma))
        assert seen["bound_gradient"] <= seen["log_det"] / (2.0 * sigma)
    if step in ("curvature", "adaptive"):
        assert seen["bound_step"] == 0.0
    else:
        assert seen["bound_step"] == pytest.approx(2.0 * C**2 * np.maximum(w - sigma * g**2, 0.0).sum())

    for f in comparators(Phi, y, C):
        regret = seen["loss"] - LOSSES[loss].values(Phi @ f, y).sum()
        b1 = 0.5 * alpha * f @ f + seen["bound_gradient"]
        assert regret <= b1 + seen["bound_step"] + 1e-9
        if step != "adaptive":
            # The third term itself, before its bound by |f(x)| <= C.
            assert regret <= b1 + 0.5 * ((w - sigma * g**2) * (values - Phi @ f) ** 2).sum() + 1e-9


@given(
    cuts=st.lists(st.integers(0, 300), max_size=6),
    stream=st.sampled_from(list(STREAMS)),
    method=st.sampled_from(METHODS),
)
@settings(max_examples=15, deadline=None)
def test_a_run_is_its_updates_however_it_is_cut(cuts: list[int], stream: str, method: tuple[str, str | float]) -> None:
    X, y = stream_for(method[0], stream, n=300)
    single, learner = (kons(*method, {"kind": "gaussian", "sigma": 0.7}) for _ in range(2))
    values, choices = play_all(single, X, y)
    seen = [learner.run(X[a:b], y[a:b]) for a, b in itertools.pairwise([0, *sorted(cuts), 300])]
    np.testing.assert_allclose(np.concatenate([block.values for block in seen]), values, rtol=0.0, atol=1e-9)
    assert b"".join(block.choices for block in seen) == choices
    expected = single.describe()
    assert learner.describe() == pytest.approx({**expected, "bytes": learner.nbytes}, rel=1e-9)
    for name, array in single.state().items():
        np.testing.assert_allclose(learner.state()[name], array, rtol=1e-7, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("stream", ["saturated", "flips"])
def test_a_restored_learner_continues_bit_for_bit_within_a_run(stream: str) -> None:
    X, y = stream_for("squared", stream, n=400)
    learner = kons("squared", "curvature", {"kind": "gaussian", "sigma": 0.7})
    learner.run(X[:170], y[:170])
    again = restore(learner.spec, learner.state(), 2)
    for one in (learner, again):
        one.update(X[170], y[170])
        one.run(X[171:], y[171:])
    expected, found = learner.state(), again.state()
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    assert learner.describe()["passive"] > 0


def test_rounds_that_teach_nothing_leave_no_trace() -> None:
    learner = kons("squared-hinge", "curvature", {"kind": "linear"}, C=3.0)
    learner.update(np.array([1.0, 0.0]), 1.0)
    before = learner.describe()
    assert 1.0 < learner.predict(np.array([1.0, 0.0])).value < learner.predict(np.array([1.2, 0.0])).value < 3.0
    learner.update(np.array([1.2, 0.0]), 1.0)  # no derivative, no projection
    learner.update(np.zeros(2), -1.0)  # no feature
    learner.run(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([1.0, 1.0]))
    after = learner.describe()
    assert after["t"] == before["t"] + 4
    assert {**after, "t": 0, "loss": 0} == {**before, "t": 0, "loss": 0}


def test_an_input_on_the_border_is_not_stored_again() -> None:
    # A projection puts it there; the last bit of m must not make every return another projection.
    learner = kons("squared", "curvature", {"kind": "gaussian", "sigma": 1.0}, alpha=0.01)
    inputs = np.random.default_rng(1).uniform(-1, 1, (20, 2))
    learner.run(np.repeat(inputs, 8, axis=0), np.ones(160))
    before = learner.describe()
    for x in inputs:
        if learner.predict(x).value == 1.0:
            learner.update(x, 1.0)
            learner.update(x, 1.0)
    after = learner.describe()
    assert after["t"] > before["t"]
    assert after["dictionary"] <= before["dictionary"] + (after["t"] - before["t"]) / 2


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("stream", ["repeated", "zeros"])
@pytest.mark.parametrize("step", STEPS["hinge"])
def test_an_input_on_the_border_is_on_the_kink_of_the_hinge(step: str | float, stream: str, kernel: str) -> None:
    # With C = 1 a projection ends on the kink, where the last bit of m must not decide the derivative.
    X, y = stream_for("hinge", stream, n=500)
    values, choices = play_all(kons("hinge", step, KERNELS[kernel]), X, y)
    at_once = kons("hinge", step, KERNELS[kernel]).run(X, y)
    assert at_once.choices == choices
    np.testing.assert_allclose(at_once.values, values, rtol=0.0, atol=1e-9)
    on_the_kink = y * values == 1.0
    assert on_the_kink.any()
    assert not np.frombuffer(choices, dtype=np.uint8)[on_the_kink].any()
    assert not ((y * values < 1.0) & (y * values > 1.0 - 1e-10)).any()


def test_the_variance_never_rounds_below_what_the_trace_allows() -> None:
    alpha = 3e-11
    learner = kons("squared", "adaptive", {"kind": "linear"}, alpha=alpha, dim=1)
    for t in range(500):
        played = learner.play(np.ones(1), (-1.0) ** t)
        assert isinstance(played, SecondOrderRound)
        # One input with w = 2: A is the number alpha + 2 t, and kappa - z^T z, alpha / (2 t), is at rounding level.
        assert played.turn.moments.q >= (1.0 - 1e-12) / (alpha + 2.0 * t)
        learner.learn(played)


def test_forecasts_are_clipped_exactly_and_carry_the_probability_of_the_loss() -> None:
    X, y = stream_for("logistic", "saturated", n=50)
    learner = kons("logistic", "adaptive", {"kind": "linear"}, C=0.5, alpha=1e-3)
    info = learner.run(X, y)
    assert (info.values == 0.5).any()
    assert np.abs(info.values).max() == 0.5
    assert info.probabilities is not None
    np.testing.assert_allclose(info.probabilities, 1.0 / (1.0 + np.exp(-info.values)), rtol=1e-12)
    assert kons("hinge", 0.1, {"kind": "linear"}).predict(np.ones(2)).probability is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"loss": "hinge"}, "no curvature"),
        ({"loss": "hinge", "step": "adaptive"}, "no curvature"),
        ({"clip": 0.0}, "clip"),
        ({"regularization": -1.0}, "regularization"),
        ({"step": 0.0}, "step"),
        ({"step": "fast"}, "step"),
        ({"loss": "absolute"}, "loss"),
        ({"kernel": {"kind": "gaussian", "sigma": "median"}}, "resolved"),
    ],
)
def test_configs_that_cannot_work_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create({"kind": "kons", "config": config}, 2)


def test_truths_beyond_the_clip_are_refused() -> None:
    learner = kons("squared", "curvature", {"kind": "linear"}, C=2.0)
    learner.update(np.ones(2), -2.0)
    with pytest.raises(LabelError, match=re.escape("from -2.0 to 2.0 (widen `clip`")):
        learner.update(np.ones(2), 2.1)
    with pytest.raises(LabelError):
        kons("logistic", "curvature", {"kind": "linear"}).update(np.ones(2), 0.5)


def test_an_overflow_changes_nothing() -> None:
    learner = kons("squared", "curvature", {"kind": "polynomial", "degree": 3})
    learner.run(*stream_for("squared", "random", n=10))
    before = learner.state()
    huge = np.full(2, 1e140)
    with np.errstate(all="ignore"):
        with pytest.raises(DivergedError):
            learner.predict(huge)
        with pytest.raises(DivergedError):
            learner.update(huge, 1.0)
        with pytest.raises(DivergedError):
            learner.run(np.stack((np.ones(2), huge)), np.ones(2))
    after = learner.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("kernel", [{"kind": "linear"}, {"kind": "polynomial", "degree": 3}], ids=lambda k: k["kind"])
def test_rows_beyond_all_proportion_are_refused_and_do_no_harm(kernel: Spec) -> None:
    X, y = stream_for("squared", "random", n=60)
    learner, undisturbed = (kons("squared", "adaptive", kernel) for _ in range(2))
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True)):
        if t % 5 == 2:
            before = learner.state()
            for call in (lambda x=x: learner.update(1e8 * x, 1.0), lambda x=x: learner.run(1e8 * x[None], np.ones(1))):
                with pytest.raises(DivergedError, match="scale the inputs down"):
                    call()
            assert all(np.array_equal(before[name], array) for name, array in learner.state().items())
        assert learner.update(x, truth) == undisturbed.update(x, truth)


def test_terms_of_the_bound_that_overflow_change_nothing() -> None:
    learner = kons("squared", 1e-150, {"kind": "linear"}, C=1e150)
    x = np.ones(2)
    for call in (lambda: learner.update(x, 1e149), lambda: learner.run(x[None], np.array([1e149]))):
        with pytest.raises(DivergedError):
            call()
    assert learner.t == 0
    assert learner.describe()["loss"] == 0.0


@pytest.mark.parametrize("at", [0, 128])
@pytest.mark.parametrize("size", [1e4, 1e10, 1e100])
def test_an_outlier_is_one_round_like_another(size: float, at: int) -> None:
    """Also where its block, or the whole learner, begins with it."""
    X, y = np.random.default_rng(3).normal(size=(200, 2)), np.sign(np.random.default_rng(4).normal(size=200))
    X[at] *= size
    single, blocked = (kons("squared", "adaptive", {"kind": "gaussian", "sigma": 0.5}) for _ in range(2))
    play_all(single, X, y)
    blocked.run(X, y)
    near = [(single.predict(x).value, blocked.predict(x).value) for x in X]
    np.testing.assert_allclose(*zip(*near, strict=True), rtol=0.0, atol=1e-9)
