"""Learners and rounds that many tests use, and sessions as the domain defines them."""

from __future__ import annotations

from typing import Any

from okl_core import LearnerSpec
from service.demo_data import magic
from service.session.definition import Definition

GAUSSIAN = {"kind": "gaussian", "sigma": 0.5}
SIGMA = {"kind": "gaussian", "sigma": "median"}
POMDR = {"kind": "pomdr", "config": {"kernel": GAUSSIAN}}
MEDIAN = {"kind": "pomdr", "config": {"kernel": SIGMA}}
MEAN = {"kind": "mean"}
ONE_VS_REST = {"kind": "one-vs-rest"}
RIDGE = {"kind": "kernel-ridge", "config": {"kernel": GAUSSIAN}}
"""Keeps all its inputs, and what it learned depends on their order: two histories never lead to one state."""

X, Y = magic()
ROWS = X[:400].round(6).tolist()
TRUTHS = ["yes" if y > 0 else "no" for y in Y[:400]]
LABELS = ("no", "yes")

EXACT: dict[str, Any] = {"strict": True, "scale": {"kind": "none"}}
"""Settings of a session whose learner is given its inputs as they come, from the first round on."""


def define(learner: dict[str, Any] = MEAN, name: str = "s", **settings: Any) -> Definition:
    """Of an exact session, unless told otherwise."""
    settings = {"is_strict": True, "scale": "none"} | settings
    return Definition(name=name, learner=LearnerSpec.model_validate(learner), **settings)
