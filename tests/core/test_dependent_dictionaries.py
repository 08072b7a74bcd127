"""Blocks whose new points all but lie in the span of the others learn what single rounds do."""

from __future__ import annotations

import numpy as np
import pytest

from okl_core import create


@pytest.mark.parametrize("kind", ["nystrom-ridge", "nystrom-aioli"])
def test_a_slow_walk_is_learned_the_same_in_blocks(kind: str) -> None:
    rng = np.random.default_rng(0)
    X = np.cumsum(0.1 * rng.standard_normal((120, 2)), axis=0)
    y = np.where(np.sin(3.0 * X[:, 0]) > 0.0, 1.0, -1.0)
    spec = {"kind": kind, "config": {"dictionary": {"kind": "kors", "regularization": 0.01}}}
    single, block = create(spec, 2), create(spec, 2)
    values = [single.update(x, truth).forecast.value for x, truth in zip(X, y.tolist(), strict=True)]
    np.testing.assert_allclose(block.run(X, y).values, values, rtol=1e-9, atol=1e-9)
    assert block.describe()["dictionary"] > 40


@pytest.mark.parametrize("kind", ["pros-n-kons", "nystrom-ridge", "nystrom-aioli"])
@pytest.mark.parametrize("in_a_block", [False, True], ids=["single", "block"])
def test_a_replay_may_find_a_recorded_point_dependent(kind: str, in_a_block: bool) -> None:
    """As on another processor, where rounding leaves nothing of it outside the span: it has its coordinate all the same."""
    learner = create({"kind": kind, "config": {"dictionary": {"kind": "ald", "threshold": 1e-3}}}, 2)
    x = np.array([0.3, 0.1])
    joined = learner.play(x, 1.0)
    learner.learn(joined)
    if in_a_block:
        learner.run(x[None, :], np.ones(1), choices=joined.choices)
    else:
        learner.learn(learner.play(x, 1.0, choices=joined.choices))
    assert learner.describe()["dictionary"] == 2
    assert np.isfinite(learner.update(x, 1.0).forecast.value)
