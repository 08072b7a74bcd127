"""Numbers of a config that are far too small or too large: refused with a ConfigError, or else a learner that works."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from okl_core import create, learner_kinds, resolve
from okl_core.contract.learner import parse_spec
from okl_core.errors import ConfigError, OklError
from okl_core.pool.expert_specs import MAX_EXPERTS

NUMBERS = (1e-200, 1e-150, 1e-50, 1e50, 1e150, 1e200)
COUNTS = (1000, 5000, 10**6, 2**31, 10**30, 10**400)
LARGEST_BYTES = 64_000_000
"""What a session may take from the start is of this order; a learner that says it takes more is not made."""


def fields_of(kind: str) -> list[tuple[str, set[str]]]:
    """Fields of a kind's config that take numbers, with the types that they take."""
    schema = type(parse_spec({"kind": kind})[2]).model_json_schema()
    found = [
        (name, {option.get("type") for option in told.get("anyOf", [told])})
        for name, told in schema["properties"].items()
    ]
    return [(name, types) for name, types in found if types & {"number", "integer"}]


def configs_of(kind: str) -> list[dict[str, Any]]:
    configs: list[dict[str, Any]] = [
        {name: value}
        for name, types in fields_of(kind)
        # Rounds of a thousand classes take seconds, as they may.
        for value in (NUMBERS if "number" in types else COUNTS[name == "classes" :])
    ]
    if "kernel" in type(parse_spec({"kind": kind})[2]).model_fields:
        configs += [{"kernel": {"kind": "gaussian", "sigma": sigma}} for sigma in NUMBERS]
    return configs


@pytest.mark.parametrize("kind", learner_kinds())
def test_a_learner_is_refused_or_works(kind: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    for config in configs_of(kind):
        try:
            _, learner, parsed = parse_spec({"kind": kind, "config": config})
            if learner.initial_bytes(parsed, 2) > LARGEST_BYTES:
                continue
            made = create({"kind": kind, "config": config}, 2)
            for x, y in zip(X[:4], rng.choice([0.0, 1.0] if made.target == "class" else [-1.0, 1.0], 4), strict=True):
                assert math.isfinite(made.update(x, y).forecast.value), config
            y = rng.choice([0.0, 1.0] if made.target == "class" else [-1.0, 1.0], len(X))
            assert np.isfinite(made.run(X, y).values).all(), config
            assert not any(math.isnan(value) for value in made.describe().values()), config
        except OklError:
            # Refused, or a round that diverged: nothing was learned from it.
            continue


@pytest.mark.parametrize("value", [1e-200, 1e200])
def test_what_is_out_of_range_is_named(value: float) -> None:
    with pytest.raises(ConfigError, match=r"config\.comparator_norm: is .*from 1e-150 to 1e\+150"):
        create({"kind": "aioli", "config": {"comparator_norm": value}}, 1)
    with pytest.raises(ConfigError, match=r"config\.kernel\.sigma: is .*from 1e-150 to 1e\+150"):
        create({"kind": "kons", "config": {"kernel": {"kind": "gaussian", "sigma": value}}}, 1)


@pytest.mark.parametrize("size", [1e-160, 1e-151, 1e151, 1e160])
@pytest.mark.parametrize(
    ("kind", "waiting"),
    [("kons", {"kernel": {"kind": kernel, "sigma": "median"}}) for kernel in ("gaussian", "laplacian")]
    + [("aioli", {"input_norm": "warmup", "intercept": False})],
)
def test_what_inputs_resolve_to_is_accepted(kind: str, waiting: dict[str, Any], size: float) -> None:
    X = size * np.random.default_rng(0).normal(size=(8, 2))
    create(resolve({"kind": kind, "config": waiting}, X), 2)


def test_the_norm_of_an_input_that_the_kernel_refuses_does_not_count() -> None:
    spec = {"kind": "kernel-aioli", "config": {"kernel": {"kind": "linear"}, "input_norm": "warmup"}}
    assert resolve(spec, np.array([[3.0], [1e100], [-4.0]])).config["input_norm"] == 4.0


@pytest.mark.parametrize(
    "experts",
    [
        ["ons"] * (MAX_EXPERTS + 1),
        [{"kind": "ons", "half_lives": list(range(8, 9 + MAX_EXPERTS))}],
        [{"kind": "pros-n-kons", "sigmas": [1.0] * 1000, "half_lives": [16] * 1000}],
        [{"kind": "pros-n-kons", "sigmas": [1.0] * MAX_EXPERTS}, "ons"],
        [{"kind": "pros-n-kons", "sigmas": [1.0] * (MAX_EXPERTS - 1)}] * (MAX_EXPERTS - 1),
        [{"kind": "ons", "half_lives": "learned"}] * (MAX_EXPERTS // 6 + 1),
    ],
)
def test_a_pool_of_too_many_experts_is_refused_before_they_are_made(experts: list[Any]) -> None:
    with pytest.raises(ConfigError, match=f"at most {MAX_EXPERTS}"):
        create({"kind": "pool", "config": {"experts": experts}}, 1)
