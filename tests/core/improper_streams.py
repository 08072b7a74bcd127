"""What the tests of the kernel forms of AIOLI share: streams, constants, and the oracle on any features."""

from __future__ import annotations

from typing import Any

import numpy as np

from okl_core.types import F64
from tests.core.newton_streams import STREAMS, stream_for
from tests.oracles.improper import FLATNESS, Run, improper

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "small": {"comparator_norm": 0.5, "regularization": 0.3, "curvature": "paper"},
    "large": {"comparator_norm": 20.0, "curvature": "paper"},
    "exact": {"comparator_norm": 5.0, "curvature": "exact"},
    "trusting": {"comparator_norm": 20.0, "regularization": 1e-4, "input_norm": 1.0},
}

NAMES = (*STREAMS, "adversarial")


def labels_for(name: str, n: int) -> tuple[F64, F64]:
    """X, shape (n, 2), and labels. `adversarial`: three places until it is sure of one label, then the other."""
    if name != "adversarial":
        return stream_for("logistic", name, n)
    X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])[np.arange(n) % 3]
    return X, np.where(np.arange(n) < n // 2, 1.0, -1.0)


def expected(config: dict[str, Any], Phi: F64, norms: F64, y: F64) -> Run:
    """What the config's AIOLI does on the features Phi, shape (n, p). The defaults are written out again."""
    B = config.get("comparator_norm", 10.0)
    R = np.maximum(norms, config.get("input_norm", 0.0))
    return improper(Phi, y, B * R, FLATNESS[config.get("curvature", "half")], config.get("regularization", 1.0 / B**2))
