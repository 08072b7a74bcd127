"""SkeGD against its definition, against NOGD where the sketches lose nothing, and the sketches themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, create, restore
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, DivergedError
from okl_core.kernels.kernels import Gaussian
from okl_core.learners.skegd.skegd_embedding import draw_landmarks, embedding_matrix, sketch_rows
from okl_core.learners.skegd.skegd_state import SkegdConfig, SkegdState
from okl_core.losses import LOSSES
from okl_core.types import F64
from tests.core.first_order_streams import FUNCTIONS, GAUSSIAN, QUADRATIC, stream
from tests.core.states import state_as
from tests.oracles.skegd import skegd

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "published": {
        "step_size": "horizon",
        "step_factor": 7.0,
        "horizon": 200,
        "buffer": "first",
        "carry": "match",
        "cycle": 20,
    },
    "large": {"sketch_size": 40, "blocks": 8, "landmarks": 20, "rank": 9, "cycle": 15},
    "every violation": {"cycle": 1, "step_size": 0.3},
    "logistic": {"loss": "logistic", "landmarks": 12, "rank": 5, "cycle": 30},
    "squared": {"loss": "squared", "step_size": 0.11, "clip": None, "cycle": 40},
    "squared, clipped": {"loss": "squared", "step_factor": 0.9, "clip": 0.8, "buffer": "first", "cycle": 40},
    "quadratic": {"kernel": QUADRATIC, "rank": 4, "landmarks": 8, "step_size": 0.03, "cycle": 25, "carry": "match"},
}


def make(config: dict[str, Any], seed: int = 0) -> OnlineLearner:
    return create({"kind": "skegd", "seed": seed, "config": {"kernel": GAUSSIAN, "budget": 25, **config}}, 2)


def state_of(learner: OnlineLearner) -> SkegdState:
    return state_as(SkegdState, learner)


def parse(config: dict[str, Any]) -> SkegdConfig:
    return SkegdConfig.model_validate({"kernel": GAUSSIAN, "budget": 25, **config})


def dense(rows: F64, size: int) -> F64:
    """S_p as the definition has it, from columns and signs."""
    S_p = np.zeros((len(rows), size))
    for i, row in enumerate(rows.astype(int).tolist()):
        for entry in row:
            S_p[i, abs(entry) - 1] += np.sign(entry) / np.sqrt(len(row))
    return S_p


@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
def test_definition(config: dict[str, Any]) -> None:
    parsed = parse(config)
    X, y = stream(1, 200, parsed.loss)
    learner = make(config)
    info = learner.run(X, y)
    state = state_of(learner)
    s_p, _, k = parsed.sizes
    values, points = skegd(
        X,
        y,
        FUNCTIONS[parsed.kernel.kind],
        LOSSES[parsed.loss].derivative,
        parsed.eta,
        dense(state.rows.view, s_p),
        state.chosen.astype(int).tolist(),
        B=25,
        k=k,
        cycle=parsed.cycle_at,
        is_match=parsed.carry == "match",
        is_first=parsed.buffer == "first",
        C=parsed.forecast_bound,
    )
    assert info.values == pytest.approx(values, abs=1e-7)
    assert state.points.coordinates() == pytest.approx(np.array(points), abs=1e-14)
    assert len(points) > 25 or "cycle" not in config


def test_it_is_nogd_where_the_sketches_lose_nothing() -> None:
    # S_p of full row rank, all points as landmarks and all dimensions: <z(x), z(s)> = k(x, s) for the stored points s.
    X, y = stream(2, 300, "hinge")
    kernel = {"kind": "laplacian"}
    config = {"budget": 25, "rank": 25, "step_size": 0.3, "kernel": kernel}
    exact = create({"kind": "nogd", "config": config}, 2).run(X, y)
    sketched = make({**config, "landmarks": 25, "sketch_size": 400, "cycle": 10**6}).run(X, y)
    assert sketched.values == pytest.approx(exact.values, abs=1e-6)


def test_the_embedding_approximates_the_kernel() -> None:
    X, _ = stream(3, 400, "hinge")
    kernel, rng = Gaussian(sigma=1.0), RoundRng(0)
    rng.begin()
    rng.at(1)
    rows, m = sketch_rows(200, 150, 4, rng), draw_landmarks(200, 30, rng).astype(np.intp)
    errors = []
    for rank in (2, 6, 12):
        Q = embedding_matrix(kernel, X[:200], rows, 150, m, rank, rng)
        assert Q.shape == (30, rank)
        Z = kernel.block(X[200:], X[m]) @ Q
        errors.append(np.abs(Z @ Z.T - kernel.gram(X[200:])).mean())
    assert errors[0] > 3.0 * errors[1] > 3.0 * errors[2]
    assert errors[2] < 0.02


def test_a_row_of_the_sketch_has_one_entry_a_block() -> None:
    rng = RoundRng(1)
    rng.begin()
    rng.at(1)
    rows = sketch_rows(3000, 10, 3, rng)
    columns = np.abs(rows)
    # Blocks of 3, 3 and 4 columns.
    for block, (first, last) in zip(columns.T, ((1, 3), (4, 6), (7, 10)), strict=True):
        values, counts = np.unique(block, return_counts=True)
        assert values.tolist() == list(range(first, last + 1))
        assert np.abs(counts / 3000 - 1.0 / len(values)).max() < 0.04
    assert np.abs(np.sign(rows).mean(axis=0)).max() < 0.08
    S_p = dense(rows, 10)
    assert np.square(S_p).sum(axis=1) == pytest.approx(np.ones(3000))


def test_landmarks_are_drawn_uniformly_and_once() -> None:
    rng, counts = RoundRng(2), np.zeros(12)
    rng.begin()
    for t in range(2000):
        rng.at(t)
        chosen = draw_landmarks(12, 5, rng)
        assert len(set(chosen.tolist())) == 5
        counts[chosen.astype(int)] += 1
    assert np.abs(counts / 2000 - 5 / 12).max() < 0.05


@pytest.mark.parametrize("cuts", [(), (26, 27, 28), (50, 130), tuple(range(1, 200))])
def test_a_run_is_its_updates_however_it_is_cut(cuts: tuple[int, ...]) -> None:
    X, y = stream(4, 200, "hinge")
    for config in (SETTINGS["large"], SETTINGS["every violation"]):
        single, blocks = make(config), make(config)
        values = [single.update(x, truth).forecast.value for x, truth in zip(X, y.tolist(), strict=True)]
        parts = zip(np.split(X, cuts), np.split(y, cuts), strict=True)
        assert np.concatenate([blocks.run(*part).values for part in parts]) == pytest.approx(values, abs=1e-9)
        for array, told in zip(blocks.state().values(), single.state().values(), strict=True):
            np.testing.assert_allclose(array, told, rtol=0.0, atol=1e-9)


def test_the_seed_draws_the_sketches() -> None:
    X, y = stream(5, 60, "hinge")
    states = [
        learner.state() for learner in (make({"buffer": "first"}, seed) for seed in (0, 0, 1)) if learner.run(X, y)
    ]
    assert np.array_equal(states[0]["rows"], states[1]["rows"])
    assert not np.array_equal(states[0]["rows"], states[2]["rows"])
    assert not np.array_equal(states[0]["chosen"], states[2]["chosen"])


def test_the_cycle_follows_an_open_horizon() -> None:
    config = parse({})
    assert [config.cycle_at(t) for t in (1, 1024, 1025)] == [1, 308, 615]
    assert parse({"step_size": "horizon", "horizon": 1000}).cycle_at(7) == 300
    # A point enters at each 40th violation, in whatever round that is.
    learner = make({"cycle": 40, "step_size": 1e-3, "buffer": "first"})
    X, y = stream(6, 25 + 130, "hinge")
    sizes = [len(state_of(learner).points) for x, truth in zip(X, y.tolist(), strict=True) if learner.update(x, truth)]
    assert np.flatnonzero(np.diff(sizes[24:])).tolist() == [39, 79, 119]


def test_repeated_points_leave_their_eigenvalues_out() -> None:
    X, y = stream(7, 60, "hinge")
    X = X[np.arange(60) % 3]
    learner = make({"buffer": "first", "rank": 10, "landmarks": 12, "cycle": 5, "step_size": 0.5})
    learner.run(X, y)
    assert learner.describe()["rank"] == 3
    assert np.isfinite(learner.run(X, y).values).all()


def test_a_replay_takes_the_recorded_ranks() -> None:
    X, y = stream(8, 25, "hinge")
    learner = make({"buffer": "first", "budget": 6, "rank": 2, "landmarks": 3})
    learner.run(X[:5], y[:5])
    played = learner.play(X[5], float(y[5]))
    # A loss; the eigenvalues kept, the rank of S_p^T K_{., m}, and that of the fit.
    assert played.choices == bytes([1, 2, 3, 2])
    learner.learn(learner.play(X[5], float(y[5]), choices=bytes([1, 1, 3, 1])))
    assert learner.describe()["rank"] == 1
    assert learner.state()["Q"].shape == (3, 1)


def test_signs_of_eigenvectors_do_not_matter() -> None:
    X, y = stream(9, 200, "hinge")
    learner = make({"rank": 3, "landmarks": 6, "cycle": 20})
    learner.run(X[:100], y[:100])
    arrays = learner.state()
    signs = np.array([1.0, -1.0, -1.0])
    arrays["Q"] *= signs
    arrays["w"] *= signs
    other = restore(learner.spec, arrays, 2)
    assert other.run(X[100:], y[100:]).values == pytest.approx(learner.run(X[100:], y[100:]).values, abs=1e-9)


def test_overflow_is_refused() -> None:
    learner = make({"kernel": QUADRATIC, "step_size": 0.01})
    learner.run(*stream(10, 100, "hinge"))
    assert learner.describe()["phase"] == 2
    before = learner.state()
    huge = np.array([1e60, 0.0])
    wrong = -1.0 if learner.predict(huge).value >= 0.0 else 1.0
    with pytest.raises(DivergedError):
        learner.update(huge, wrong)
    with pytest.raises(DivergedError):
        learner.run(np.array([[0.1, 0.0], huge]), np.array([1.0, wrong]))
    assert all(np.array_equal(before[name], array) for name, array in learner.state().items())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"sketch_size": 3}, "blocks is 4"),
        ({"rank": 5, "landmarks": 4}, "rank is 5"),
        ({"rank": 20, "sketch_size": 10}, "rank is 20"),
        ({"landmarks": 26}, "landmarks is 26"),
        ({"cycle": 0}, "cycle"),
        ({"carry": "drop"}, "carry"),
    ],
)
def test_a_config_that_cannot_work_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(config)


def test_sizes_follow_the_budget() -> None:
    assert SkegdConfig().sizes == (300, 60, 40)
    assert SkegdConfig(budget=2).sizes == (4, 1, 1)
