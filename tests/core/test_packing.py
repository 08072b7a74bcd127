"""Ellipsoid packing against the algorithm as it is printed, its bound, and the corners of its inputs."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core import OnlineLearner, create, restore
from okl_core.contract.agreement import same_arrays
from okl_core.errors import ConfigError, DivergedError, NotPositiveDefiniteError, ReplayDivergence, StateFormatError
from okl_core.learners.packing import PackingRound
from okl_core.linalg.nearest import FARTHEST
from okl_core.metrics.mahalanobis import Metric, factored
from okl_core.packing.radius import Radius, effective_rank
from okl_core.packing.regret_bounds import most_centres, regret_bound
from okl_core.types import F64
from tests.core.packing_streams import WAYS, ball, full_metric, lattice, truths, use_way
from tests.oracles.packing import PackingRun, ellipsoid_packing, rank

METRICS = ("identity", "diagonal", "full")


def metric_of(name: str, d: int) -> tuple[Any, F64]:
    """What the config is given, and M with its largest eigenvalue 1."""
    if name == "identity":
        return name, np.eye(d)
    if name == "diagonal":
        # Powers of 4, so that their roots, and distances on a lattice, are exact; the largest is not the first.
        entries: F64 = np.exp2(-2.0 * np.roll(np.arange(d) % 3, 1))
        return (8.0 * entries).tolist(), np.eye(d) * entries
    M = full_metric(d, np.random.default_rng(d))
    return (3.0 * M).tolist(), M


def packing(metric: Any, d: int, **config: Any) -> OnlineLearner:
    return create({"kind": "packing", "config": {"metric": metric, **config}}, d)


def play_all(learner: OnlineLearner, X: F64, y: F64) -> tuple[PackingRun, bytes]:
    run, choices = PackingRun(), b""
    for x, truth in zip(X, y.tolist(), strict=True):
        played = learner.play(x, truth)
        assert isinstance(played, PackingRound)
        run.values.append(played.forecast.value)
        run.active.append(max(0, played.placement.centre))
        # The first round opens a ball and is in it.
        run.inside.append(played.placement.is_inside or played.placement.centre < 0)
        choices += played.choices
        learner.learn(played)
    return run, choices


def same_packing(first: OnlineLearner, second: OnlineLearner) -> None:
    """Bit for bit, but for the loss, whose terms a block computes by another routine."""
    states = [learner.state() for learner in (first, second)]
    losses = [state.pop("loss") for state in states]
    same_arrays(states[0], states[1], "two packings")
    np.testing.assert_allclose(*losses, rtol=1e-12)


@functools.cache
def printed(name: str, d: int, include_center: bool) -> tuple[Any, F64, F64, PackingRun]:
    """A metric, a stream, and what the printed algorithm does."""
    rng = np.random.default_rng(d)
    metric, M = metric_of(name, d)
    # Ties are exact ties for both only where the arithmetic is exact.
    X = ball(1200, d, rng) if name == "full" else np.vstack((lattice(600, d, rng), ball(600, d, rng)))
    X[300::7] = X[5:-295:7][: len(X[300::7])]
    y = truths(X, rng)
    return metric, X, y, ellipsoid_packing(X, y, M, include_center)


@pytest.mark.pairs
@pytest.mark.parametrize("include_center", [True, False])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("way", WAYS)
def test_it_is_the_printed_algorithm(
    way: str, name: str, d: int, include_center: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_way(monkeypatch, way)
    metric, X, y, expected = printed(name, d, include_center)
    single, blocked = (packing(metric, d, include_center=include_center) for _ in range(2))
    run, choices = play_all(single, X, y)
    assert run.active == expected.active
    assert run.inside == expected.inside
    np.testing.assert_allclose(run.values, expected.values, rtol=0.0, atol=1e-12)
    assert len(expected.lists) == single.describe()["dictionary"]
    info = blocked.run(X, y)
    assert info.choices == choices
    assert info.values.tolist() == run.values
    same_packing(single, blocked)
    state = single.state()
    assert state["packing.counts"].tolist() == [len(kept) for kept in expected.lists]
    np.testing.assert_allclose(state["packing.sums"], [sum(kept) for kept in expected.lists], atol=1e-10)


def test_the_lattice_has_ties() -> None:
    # Otherwise the test above would not see who wins them.
    X = lattice(600, 2, np.random.default_rng(2))
    run = ellipsoid_packing(X, np.zeros(600), np.eye(2), include_center=True)
    centres = X[[t for t in range(600) if t == 0 or not run.inside[t]]]
    distances = np.sort(np.linalg.norm(X[:, None] - centres, axis=2), axis=1)
    assert (distances[:, 0] == distances[:, 1]).sum() > 30


@given(d=st.integers(1, 12), t=st.integers(1, 10**6), decay=st.floats(0.0, 40.0), seed=st.integers(0, 2**32))
def test_effective_rank_is_the_definition(d: int, t: int, decay: float, seed: int) -> None:
    eigenvalues = np.sort(np.exp(-decay * np.random.default_rng(seed).random(d)))[::-1]
    eigenvalues[0] = 1.0
    if d > 2:
        # On the border of the definition at t.
        eigenvalues[2] = min(eigenvalues[1], t ** (-2.0 / 3.0))
        eigenvalues[3:] = np.minimum(eigenvalues[3:], eigenvalues[2])
    radius = Radius(eigenvalues)
    for s in (1, 2, max(1, t - 1), t, t + 1, 10 * t):
        expected = rank(eigenvalues, s)
        assert effective_rank(eigenvalues, s) == radius.rank(s) == expected
        assert radius.at(s) == s ** (-1.0 / (1.0 + expected))
    first = max(1, t - 3)
    assert radius.during(first, 7) == [radius.at(u) for u in range(first, first + 7)]


@pytest.mark.parametrize("r", [1, 2, 3, 7])
def test_the_rank_changes_in_the_round_of_the_definition(r: int) -> None:
    for t in range(2, 300):
        border = t ** (-2.0 / (1 + r))
        for eigenvalue in (border, math.nextafter(border, 0.0), math.nextafter(border, 1.0)):
            eigenvalues = np.array([1.0] * r + [eigenvalue])
            assert [effective_rank(eigenvalues, s) for s in (t - 1, t, t + 1)] == [
                rank(eigenvalues, s) for s in (t - 1, t, t + 1)
            ]


def test_the_identity_has_full_rank_from_the_start() -> None:
    assert [effective_rank(np.ones(4), t) for t in (1, 2, 1000)] == [4, 4, 4]
    assert effective_rank(np.array([1.0, 1e-300, 1e-300, 1e-300]), 10**9) == 1


@pytest.mark.parametrize("d", [1, 2, 4, 9])
def test_a_metric_is_what_it_was_made_of(d: int) -> None:
    rng = np.random.default_rng(d)
    M = full_metric(d, rng)
    root, eigenvalues = factored(5.0 * M)
    metric = Metric(root)
    np.testing.assert_allclose(metric.matrix, M, atol=1e-14)
    np.testing.assert_allclose(eigenvalues, np.linalg.eigvalsh(M)[::-1], atol=1e-14)
    assert eigenvalues[0] == 1.0
    root, eigenvalues = factored(np.arange(1.0, d + 1.0))
    diagonal = Metric(root)
    np.testing.assert_allclose(diagonal.matrix, np.diag(np.arange(1.0, d + 1.0) / d), atol=1e-15)
    np.testing.assert_allclose(eigenvalues, np.arange(d, 0.0, -1.0) / d, rtol=1e-15)
    X = rng.standard_normal((20, d))
    for made in (metric, diagonal):
        Z = made.map_block(X.T)
        np.testing.assert_array_equal(Z.T, [made.map(x) for x in X])
        np.testing.assert_allclose((Z**2).sum(axis=0), np.einsum("ni,ij,nj->n", X, made.matrix, X), rtol=1e-12)


def asymmetric(by: float) -> list[list[float]]:
    """A metric with two entries that differ by so much of the largest."""
    return [[4.0, 1.0 + 4.0 * by, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]]


def test_a_metric_that_is_asymmetric_by_rounding_is_taken() -> None:
    U = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    M = (U * [1.0, 0.3, 0.1]) @ U.T
    M[0, 1] += 6e-17
    assert M[0, 1] != M[1, 0]
    X = ball(200, 3, np.random.default_rng(1))
    y = truths(X, np.random.default_rng(2))
    given = packing(M.tolist(), 3)
    mended = packing((0.5 * (M + M.T)).tolist(), 3)
    np.testing.assert_array_equal(given.run(X, y).values, mended.run(X, y).values)
    same_packing(given, mended)
    packing(asymmetric(1e-14), 3)


@pytest.mark.parametrize("by", [1e-11, 1e-3, -1e-11])
def test_a_metric_that_is_asymmetric_by_more_is_refused(by: float) -> None:
    with pytest.raises(ConfigError, match="not symmetric"):
        packing(asymmetric(by), 3)


@pytest.mark.parametrize("size", [1e-300, 1e-8, 1.0, 1e308])
def test_the_size_of_a_metric_does_not_matter(size: float) -> None:
    # Of the largest size the sum of two entries overflows.
    M = size * np.array([[1.0, 0.5], [0.5, 0.75]])
    expected = [[1.0, 0.5], [0.5, 0.75]] / np.linalg.eigvalsh(M / size)[-1]
    np.testing.assert_allclose(Metric(factored(M).root).matrix, expected, rtol=1e-12)
    with pytest.raises(NotPositiveDefiniteError, match="symmetric"):
        factored(size * np.array([[1.0, 0.5], [-0.5, 1.0]]))


@pytest.mark.parametrize("d", [2, 5])
def test_turning_inputs_and_metric_together_changes_nothing(d: int) -> None:
    rng = np.random.default_rng(d)
    X, M = ball(800, d, rng), full_metric(d, rng)
    y, Q = truths(X, rng), np.linalg.qr(rng.standard_normal((d, d)))[0]
    turned = Q @ M @ Q.T
    first = packing(M.tolist(), d).run(X, y)
    second = packing((0.5 * (turned + turned.T)).tolist(), d).run(X @ Q.T, y)
    assert first.choices == second.choices
    np.testing.assert_array_equal(first.values, second.values)


@pytest.mark.parametrize("include_center", [True, False])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("name", METRICS)
def test_regret_stays_within_its_bound(name: str, d: int, include_center: bool) -> None:
    metric, M = metric_of(name, d)
    eigenvalues, U = np.linalg.eigh(M)
    eigenvalues, U = eigenvalues[::-1], U[:, ::-1]
    eigenvalues = eigenvalues / eigenvalues[0]
    rng = np.random.default_rng(d)
    T = 1500
    X, w = ball(T, d, rng), rng.standard_normal(d)
    f = 0.5 + 0.5 * np.sin(X @ w)
    streams = {
        "noise": np.clip(f + 0.1 * rng.standard_normal(T), 0.0, 1.0),
        "adverse": (f > rng.random(T)).astype(float),
    }
    for what, y in streams.items():
        learner = packing(metric, d, include_center=include_center)
        learner.run(X, y)
        seen = learner.describe()
        regret = seen["loss"] - ((f - y) ** 2).sum()
        gradients = 0.5 * np.abs(w @ U)
        tight = regret_bound(eigenvalues, gradients, T, seen["dictionary"])
        assert regret <= tight <= regret_bound(eigenvalues, gradients, T, most_centres(eigenvalues, T)), what
        assert seen["bound_balls"] <= tight
        assert seen["dictionary"] <= most_centres(eigenvalues, T)


def test_the_bound_is_the_published_one_where_kappa_is_rho() -> None:
    T, d = 1000, 3
    eigenvalues, gradients = np.ones(d), np.array([1.0, 2.0, 2.0])
    packing_part = (8.0 * math.log(math.e * T) + 1.0) * (8.0 * math.sqrt(2.0)) ** d * T ** (d / (1 + d))
    assert regret_bound(eigenvalues, gradients, T, most_centres(eigenvalues, T)) == pytest.approx(
        packing_part + 4.0 * 3.0 * T ** (d / (1 + d))
    )


def test_directions_shorter_than_the_radius_need_no_more_centres() -> None:
    # rho = 2, so the radius in round 100 is 0.215; the roots of the eigenvalues are 1, 0.3 and 0.1.
    eps = 100 ** (-1.0 / 3.0)
    expected = (8.0 * math.sqrt(2.0) / eps) ** 2 * 0.3
    assert most_centres(np.array([1.0, 0.09, 0.01]), 100) == pytest.approx(expected)


@pytest.mark.parametrize("eigenvalues", [[1.0, 0.1, 0.2], [0.5, 0.2, 0.1], [2.0, 0.2, 0.1], [1.0, 0.2, 0.0]])
def test_eigenvalues_that_are_no_metrics_are_refused(eigenvalues: list[float]) -> None:
    learner = packing("identity", 3)
    learner.run(np.zeros((5, 3)), np.full(5, 0.5))
    with pytest.raises(StateFormatError, match="descend from 1"):
        restore(learner.spec, learner.state() | {"packing.radius.eigenvalues": np.array(eigenvalues)})


def test_centres_are_farther_apart_than_the_radius() -> None:
    metric, M = metric_of("full", 3)
    learner = packing(metric, 3)
    rng = np.random.default_rng(0)
    X = ball(3000, 3, rng)
    learner.run(X, truths(X, rng))
    Z = learner.state()["packing.centres"]
    distances = np.linalg.norm(Z[:, None] - Z, axis=2) + 2.0 * np.eye(len(Z))
    assert distances.min() > 3000 ** (-1.0 / (1.0 + rank(factored(M).eigenvalues, 3000)))


@pytest.mark.parametrize("include_center", [True, False])
def test_the_answer_where_nothing_is_known(include_center: bool) -> None:
    learner = packing("identity", 1, include_center=include_center, truth_range=[-1.0, 4.0])
    assert learner.predict(np.zeros(1)).value == 1.5
    learner.update(np.zeros(1), 4.0)
    assert learner.predict(np.zeros(1)).value == 4.0
    learner.update(np.array([5.0]), -1.0)
    assert learner.describe()["dictionary"] == 2
    assert learner.predict(np.array([5.0])).value == (-1.0 if include_center else 1.5)


@pytest.mark.parametrize("way", WAYS)
def test_a_restored_learner_continues_from_every_round(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_way(monkeypatch, way)
    rng = np.random.default_rng(1)
    X = ball(160, 2, rng)
    y, (metric, _) = truths(X, rng), metric_of("full", 2)
    learner = packing(metric, 2)
    for t in range(len(X)):
        restored = restore(learner.spec, learner.state(), 2)
        rest = slice(t, t + 12)
        ahead = restore(learner.spec, learner.state(), 2)
        assert restored.run(X[rest], y[rest]).values.tolist() == play_all(ahead, X[rest], y[rest])[0].values
        same_packing(restored, ahead)
        learner.update(X[t], y[t])


def test_recorded_choices_are_followed() -> None:
    rng = np.random.default_rng(2)
    X = ball(40, 2, rng)
    y = truths(X, rng)
    learner, blocked = packing("identity", 2), packing("identity", 2)
    _, choices = play_all(learner, X[:-1], y[:-1])
    state = learner.state()
    assert len(state["packing.counts"]) > 3
    # Neither the nearest centre nor the verdict is what would be decided here.
    nearest, is_inside = learner.play(X[-1], y[-1]).choices
    other = (nearest + 1) % len(state["packing.counts"])
    recorded = bytes([other, 1 - is_inside])
    value = state["packing.sums"][other] / state["packing.counts"][other]
    assert learner.replay(X[-1], y[-1], choices=recorded, value=value).forecast.value == value
    blocked.run(X, y, choices=choices + recorded)
    same_packing(learner, blocked)
    assert len(learner.state()["packing.counts"]) == len(state["packing.counts"]) + is_inside
    for nobody in (bytes([100, 0]), bytes([127, 1])):
        with pytest.raises(ReplayDivergence, match="centre"):
            learner.play(X[0], y[0], choices=nobody)


@pytest.mark.parametrize("name", METRICS)
def test_an_input_too_large_changes_nothing(name: str) -> None:
    metric, _ = metric_of(name, 2)
    learner = packing(metric, 2)
    good, bad = np.array([0.5, 0.1]), np.full(2, math.sqrt(FARTHEST))
    learner.update(good, 1.0)
    before = learner.state()
    for call in (
        lambda: learner.predict(bad),
        lambda: learner.update(bad, 1.0),
        lambda: learner.run(np.vstack((good, bad)), np.ones(2)),
    ):
        with pytest.raises(DivergedError, match="scale"):
            call()
    same_arrays(before, learner.state(), "a refused input")
    # Opposite ends of what is taken.
    for sign in (1.0, -1.0):
        learner.update(sign * 0.5 * bad, 0.5)
    assert learner.describe()["dictionary"] == 3


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"metric": [1.0, 0.0]}, "positive definite"),
        ({"metric": [1.0, -1.0]}, "positive definite"),
        ({"metric": [[1.0, 2.0], [2.0, 1.0]]}, "positive definite"),
        ({"metric": [[1.0, 0.5], [0.4, 1.0]]}, "symmetric"),
        ({"metric": [[1.0, 0.0]]}, "rows"),
        ({"metric": [[1.0, 0.0], [0.0]]}, "rows"),
        ({"metric": []}, "metric"),
        ({"metric": [1.0, 1.0, 1.0]}, "3 inputs, the learner has 2"),
        ({"metric": [[1.0]]}, "1 inputs, the learner has 2"),
        ({"truth_range": [1.0, 0.0]}, "truth_range"),
        ({"truth_range": [0.0, 1e200]}, "truth_range"),
        ({"truth_range": [0.0]}, "truth_range"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        create({"kind": "packing", "config": config}, 2)
    [*_, (path, _)] = caught.value.errors
    assert path[0] == "config"


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("packing.counts", np.ones(1)),
        ("packing.metric.root", np.ones((2, 3))),
        ("packing.metric.root", np.ones(3)),
        ("packing.radius.eigenvalues", np.ones(3)),
        ("packing.radius.eigenvalues", np.zeros(2)),
        ("packing.t", np.zeros(())),
        ("packing.sums", np.ones((2, 1))),
        ("packing.centres", np.ones((5, 3))),
        ("packing.other", np.ones(1)),
    ],
)
def test_a_state_that_does_not_fit_is_refused(name: str, array: F64) -> None:
    learner = packing("identity", 2)
    learner.run(2.0 * np.eye(2), np.ones(2))
    with pytest.raises(StateFormatError):
        restore(learner.spec, learner.state() | {name: array}, 2)
