"""Support for `half_life: "learned"`, shorthand for a pool of the learner with a grid of half-lives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from okl_core.errors import ConfigError
from okl_core.losses import Loss
from okl_core.types import LearnerConfig, Target

LEARNED = "learned"

LOG_ODDS = 30.0
"""Clip of a pool whose learners forecast probabilities without a clip; beyond it a probability is 0 or 1 to 13 digits."""


def has_learned_half_life(config: Mapping[str, Any]) -> bool:
    return config.get("half_life") == LEARNED


def mixture(kind: str, given: Mapping[str, Any], config: LearnerConfig, loss: Loss, target: Target) -> dict[str, Any]:
    """The config of the pool that a learner with a learned half-life expands to; `given` is the learner's config as written.

    The pool weighs its experts by the learner's loss if that is logistic or squared, and otherwise by the squared distance
    to the labels. A learner of classes is weighed by the log-loss of its probabilities. Raises ConfigError if forecasts of
    real numbers have no bound.
    """
    expert = {"kind": kind, "config": {name: value for name, value in given.items() if name != "half_life"}}
    pool: dict[str, Any] = {"experts": [expert | {"half_lives": LEARNED}]}
    if target == "class":
        # Without `classes`, a learner has as many classes as the session has labels; so has the pool.
        return pool | {"truth": "classes"} | ({"classes": given["classes"]} if "classes" in given else {})
    clip: float | None = getattr(config, "clip", None)
    if loss.name == "logistic":
        return pool | {"loss": "logistic", "clip": LOG_ODDS if clip is None else clip}
    if loss.target == "real":
        if clip is None:
            message = 'a half-life is "learned" from losses that have a bound: give `clip`, the largest truth'
            raise ConfigError(f"{kind}: half_life: {message}", [(("config", "half_life"), message)])
        return pool | {"truth": "numbers", "clip": clip}
    return pool | {"clip": max(1.0, clip or 1.0)}
