"""What a block takes beside the state: bounded, however wide its rounds are, however many and however many learners play."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, create, restore
from okl_core.contract.rng import WORDS, RoundRng
from okl_core.contract.workload import WORKING_BYTES, rows_at_once
from okl_core.kernels.fourier import features
from okl_core.types import F64, BlockInfo

MOST = 4 * WORKING_BYTES
"""Bytes: a handful of arrays that each block may have, and what the making of an embedding takes."""

Spec = dict[str, Any]

HINGE = {"loss": "squared-hinge"}
LOGISTIC = {"kind": "ons", "config": {"loss": "logistic"}}
POOL_OF_CLASSES = {
    "kind": "pool",
    "config": {
        "truth": "classes",
        "classes": 1000,
        "experts": [{"kind": "one-vs-rest", "config": {"member": LOGISTIC}}, "frequencies"],
    },
}

BLOCKS: dict[str, tuple[Spec, int, int, int]] = {
    "many frequencies": ({"kind": "fogd", "config": {"frequencies": 250_000}}, 1, 0, 70),
    "a pool of 500": ({"kind": "pool", "config": {"experts": [{"kind": "kons", "config": HINGE}] * 500}}, 2, 40, 6),
    "a large embedding": ({"kind": "nogd", "config": {"budget": 1500, "buffer": "first"}}, 2, 0, 1600),
    "a large sketch": ({"kind": "skegd", "config": {"budget": 1500, "buffer": "first"}}, 2, 0, 1600),
    "a thousand classes": ({"kind": "one-vs-rest", "config": {"classes": 1000, "member": LOGISTIC}}, 3, 2, 10),
    "a pool of a thousand classes": (POOL_OF_CLASSES, 3, 2, 12),
    "a million points": ({"kind": "kernel-ogd", "config": {"loss": "logistic"}}, 1, 1, 30),
    "a large reservoir": ({"kind": "bao2ks", "config": {"budget": 5000, "reservoir": 3000}}, 1, 1, 20),
    "many inputs": ({"kind": "ogd-logistic"}, 10**5, 0, 60),
}
"""Spec, inputs, rounds before, rounds of the block."""


def stream(learner: OnlineLearner, n: int) -> tuple[F64, F64]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (n, learner.dim))
    if learner.target == "class":
        return X, rng.integers(0, 1000, n).astype(np.float64)
    return X, np.where(rng.random(n) < 0.5, 1.0, -1.0)


def beside(learner: OnlineLearner, call: Callable[[], BlockInfo | object]) -> int:
    """Bytes at most that a call takes at once beside what it leaves: the state, and what it returns."""
    tracemalloc.start()
    try:
        kept = call()
        left, peak = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return peak - left


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_takes_a_bounded_memory(name: str) -> None:
    spec, dim, before, rounds = BLOCKS[name]
    learner = create(spec, dim)
    if name == "a million points":
        learner = with_points(learner, 10**6)
    X, y = stream(learner, before + rounds)
    if before:
        learner.run(X[:before], y[:before])
    assert beside(learner, lambda: learner.run(X[before:], y[before:])) < MOST
    assert beside(learner, lambda: learner.predict(X[0])) < MOST
    assert beside(learner, lambda: learner.play(X[0], float(y[0]))) < MOST


def with_points(learner: OnlineLearner, n: int) -> OnlineLearner:
    """The learner of a stream with a loss in each of n rounds, made without playing them."""
    learner.update(np.zeros(1), 1.0)
    arrays = learner.state()
    rows = np.repeat(arrays["points.rows"], n, axis=0)
    return restore(learner.spec, arrays | {"points.rows": rows, "coefficients": np.full(n, 1e-6)}, learner.dim)


def test_rows_fit() -> None:
    for width in (0, 1, 10**3, 10**5, 10**7):
        rows = rows_at_once(width, 128)
        assert 1 <= rows <= 128
        assert rows == 1 or 8 * rows * width <= WORKING_BYTES


def test_features_in_parts_are_those_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    frequencies, H = rng.standard_normal((100, 3)), rng.standard_normal((7, 3))
    whole = features(frequencies, H)
    monkeypatch.setattr("okl_core.contract.workload.WORKING_BYTES", 8 * 4 * 2 * 7 * 30)
    np.testing.assert_allclose(features(frequencies, H), whole, rtol=0.0, atol=1e-13)


KINDS = ("bao2ks", "kernel-ogd", "bogd", "nogd", "skegd", "pomdr", "fogd", "kons", "pros-n-kons", "ons", "ogd-logistic")


@pytest.mark.parametrize("working", [3000, 40_000])
@pytest.mark.parametrize("kind", KINDS)
def test_a_block_in_parts_is_the_block(kind: str, working: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {"kind": kind, "config": {"budget": 40} if kind in ("nogd", "skegd", "kernel-ogd") else {}}
    whole, parts = create(spec, 2), create(spec, 2)
    X, y = stream(whole, 150)
    expected = whole.run(X, y)
    monkeypatch.setattr("okl_core.contract.workload.WORKING_BYTES", working)
    found = parts.run(X, y)
    np.testing.assert_allclose(found.values, expected.values, rtol=0.0, atol=1e-9)
    assert found.choices == expected.choices


@pytest.mark.parametrize("n", [0, 1, WORDS, WORDS + 1, 3 * WORDS - 1])
def test_many_uniforms_are_those_drawn_at_once(n: int) -> None:
    rng = RoundRng(3)
    rng.at(5)
    found = rng.uniform(n)
    rng.at(5)
    assert found.tolist() == rng.uniforms(n)
