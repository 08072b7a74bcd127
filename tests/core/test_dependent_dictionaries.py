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
