"""Forecasts of every kind, written down: `python -m tests.golden.forecasts`.

`forecasts.npz` has the values of 500 rounds of `update` for each case. The numbers are the learners', whatever their state
looks like: no change of the code's shape may move them. This program only adds cases that are not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from okl_core import create, parse_spec
from okl_core.types import F64
from service.demo_data import magic

PATH = Path(__file__).parent / "forecasts.npz"
ROUNDS = 500

GAUSSIAN = {"kind": "gaussian", "sigma": 2.0}

RELEVANCE = {"kind": "relevance", "smooth": [0.1] * 10, "steps": [0.2] * 10, "pairs": [0.2] * 10}

SPECS: dict[str, tuple[str, dict[str, Any]]] = {
    "ahpatron": ("ahpatron", {"kernel": GAUSSIAN, "budget": 20}),
    "aioli": ("aioli", {}),
    "aioli-half-life": ("aioli", {"half_life": 64, "curvature": "paper", "intercept": False}),
    "aogd-ald": ("aogd-ald", {"kernel": GAUSSIAN, "dictionary_size": 20, "budget": 60}),
    "auto": ("auto", {"relevance": RELEVANCE, "classes": 3, "budget": 60, "half_life": 200, "window": 100}),
    "auto-numbers": (
        "auto",
        {"relevance": RELEVANCE, "truth": "numbers", "budget": 60, "half_life": 200, "window": 100},
    ),
    "bao2ks": ("bao2ks", {"kernel": GAUSSIAN, "budget": 40}),
    "bogd": ("bogd", {"kernel": GAUSSIAN, "budget": 40, "loss": "logistic"}),
    "fogd": ("fogd", {"kernel": GAUSSIAN, "frequencies": 60}),
    "foster-1d": ("foster-1d", {}),
    "fourier-aioli": ("fourier-aioli", {"kernel": GAUSSIAN, "frequencies": 40}),
    "ftrl-logistic": ("ftrl-logistic", {}),
    "kernel-aar": ("kernel-aar", {"kernel": GAUSSIAN}),
    "kernel-aar-window": ("kernel-aar", {"kernel": GAUSSIAN, "window": 120, "clip": 1.0}),
    "kernel-aar-half-life": ("kernel-aar", {"kernel": GAUSSIAN, "half_life": 16}),
    "kernel-aioli": ("kernel-aioli", {"kernel": GAUSSIAN}),
    "kernel-aioli-half-life": ("kernel-aioli", {"kernel": GAUSSIAN, "half_life": 40, "comparator_norm": 3.0}),
    "kernel-aioli-window": ("kernel-aioli", {"kernel": GAUSSIAN, "window": 120, "comparator_norm": 3.0}),
    "kernel-ogd": ("kernel-ogd", {"kernel": GAUSSIAN}),
    "kernel-ogd-budget": ("kernel-ogd", {"kernel": GAUSSIAN, "budget": 40, "loss": "squared"}),
    "kernel-ridge": ("kernel-ridge", {"kernel": GAUSSIAN}),
    "kons": ("kons", {"kernel": GAUSSIAN}),
    "kons-adaptive-window": ("kons", {"kernel": GAUSSIAN, "loss": "logistic", "step": "adaptive", "window": 120}),
    "kons-half-life": ("kons", {"kernel": GAUSSIAN, "loss": "squared-hinge", "half_life": 30}),
    "kons-hinge": ("kons", {"kernel": GAUSSIAN, "loss": "hinge", "step": "inverse-sqrt"}),
    "kons-polynomial": ("kons", {"kernel": {"kind": "polynomial"}, "loss": "squared-hinge", "step": "adaptive"}),
    "last-label": ("last-label", {}),
    "frequencies": ("frequencies", {"classes": 3}),
    "majority": ("majority", {}),
    "mean": ("mean", {}),
    "metric-packing": ("metric-packing", {}),
    "nogd": ("nogd", {"kernel": GAUSSIAN, "budget": 40}),
    "nons-ald": ("nons-ald", {"kernel": GAUSSIAN, "budget": 60}),
    "nons-ald-half-life": ("nons-ald", {"kernel": GAUSSIAN, "budget": 60, "half_life": 64}),
    "nons-ald-shipped": ("nons-ald", {"kernel": GAUSSIAN, "step": "shipped", "threshold": 0.5}),
    "nystrom-aar": ("nystrom-aar", {"kernel": GAUSSIAN, "budget": 60}),
    "nystrom-aioli": ("nystrom-aioli", {"kernel": GAUSSIAN, "budget": 60}),
    "nystrom-aioli-linear": ("nystrom-aioli", {"kernel": {"kind": "linear"}, "budget": 60, "half_life": 64}),
    "nystrom-ridge": ("nystrom-ridge", {"kernel": GAUSSIAN, "budget": 60, "half_life": 64}),
    "nystrom-ridge-ald": ("nystrom-ridge", {"kernel": GAUSSIAN, "dictionary": {"kind": "ald"}, "clip": 1.0}),
    "ogd-logistic": ("ogd-logistic", {}),
    "one-vs-rest": ("one-vs-rest", {"classes": 3}),
    "one-vs-rest-nystrom": (
        "one-vs-rest",
        {"classes": 3, "member": {"kind": "nystrom-aioli", "config": {"kernel": GAUSSIAN, "budget": 40}}},
    ),
    "ons": ("ons", {}),
    "softmax-aioli": ("softmax-aioli", {"classes": 3}),
    "softmax-aioli-half-life": ("softmax-aioli", {"classes": 3, "half_life": 40}),
    "ons-half-life": ("ons", {"loss": "logistic", "step": "adaptive", "half_life": 64}),
    "packing": ("packing", {}),
    "packing-linear": ("packing", {"estimate": "linear"}),
    "pomdr": ("pomdr", {"kernel": GAUSSIAN, "budget": 40, "pomd_budget": 12}),
    "pool": ("pool", {}),
    "pool-numbers": ("pool", {"truth": "numbers"}),
    "pool-classes": ("pool", {"truth": "classes", "classes": 3}),
    "pros-n-kons": ("pros-n-kons", {"kernel": GAUSSIAN, "budget": 60}),
    "pros-n-kons-half-life": ("pros-n-kons", {"kernel": GAUSSIAN, "budget": 60, "half_life": 64, "loss": "logistic"}),
    "pros-n-kons-published": (
        "pros-n-kons",
        {"kernel": GAUSSIAN, "carry": "reset", "step": "half-curvature", "budget": None},
    ),
    "skegd": ("skegd", {"kernel": GAUSSIAN, "budget": 40}),
    "skegd-cycle": ("skegd", {"kernel": GAUSSIAN, "budget": 40, "loss": "squared", "cycle": 100, "carry": "match"}),
    "sketched-kons": ("sketched-kons", {"kernel": GAUSSIAN, "oversampling": 0.5}),
    "sketched-kons-half-life": ("sketched-kons", {"kernel": GAUSSIAN, "oversampling": 0.5, "half_life": 16}),
    "sketched-kons-window": (
        "sketched-kons",
        {"kernel": GAUSSIAN, "loss": "logistic", "step": "adaptive", "window": 120},
    ),
}


def spec_of(case: str) -> dict[str, Any]:
    kind, config = SPECS[case]
    return {"kind": kind, "seed": 7, "config": config}


def stream(case: str) -> tuple[F64, F64]:
    """500 rows of MAGIC, and truths that the case's learner takes."""
    _, learner, config = parse_spec(spec_of(case))
    X, labels = magic()
    X, labels = np.array(X[:ROUNDS]), np.array(labels[:ROUNDS])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    if learner.input_radius(config) is not None:
        X /= np.linalg.norm(X, axis=1).max()
    waves = 0.6 * np.sin(X[:, 0] + X[:, 1] * X[:, 2]) + 0.3 * np.cos(np.arange(ROUNDS) / 7.0)
    low, high = learner.truth_range(config)
    if np.isfinite(low):
        waves = low + (high - low) * (waves + 1.0) / 2.0
    target = learner.target(config)
    truths = {"binary": labels, "real": waves, "any": waves, "class": np.digitize(X[:, 0], [-0.5, 0.5]).astype(float)}
    return np.ascontiguousarray(X[:, :1] if learner.dims == 1 else X), truths[target]


def values_of(case: str, rounds: int = ROUNDS) -> F64:
    """The forecasts of the first rounds, one by one."""
    X, y = stream(case)
    learner = create(spec_of(case), dim=X.shape[1])
    played = zip(X[:rounds], y[:rounds], strict=True)
    return np.array([learner.update(x, float(truth)).forecast.value for x, truth in played])


def main() -> None:
    kept = dict(np.load(PATH)) if PATH.exists() else {}
    added = {case: values_of(case) for case in SPECS if case not in kept}
    np.savez_compressed(PATH, **(kept | added))


if __name__ == "__main__":
    main()
