"""The sessions whose stored bytes are kept: one at least of every learner, and one of every way to settle a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

GAUSSIAN = {"kind": "gaussian", "sigma": 0.5}
MEDIAN = {"kind": "gaussian", "sigma": "median"}
SCHEMA = {
    "length": "number",
    "wide": {"type": "boolean"},
    "angle": {"type": "category", "categories": ["flat", "middle", "steep"]},
    "distance": "number",
}


@dataclass(frozen=True, slots=True)
class Case:
    """`inputs` says how a row of MAGIC is sent; `block` are the rounds [start, stop) that one request brings.

    A session is strict and its inputs are not scaled, unless the settings say otherwise.
    """

    settings: dict[str, Any]
    rounds: int
    snapshot_after: int
    inputs: str = "list"
    block: range = range(0)


CASES = {
    "pomdr": Case(
        {"learner": {"kind": "pomdr", "config": {"kernel": GAUSSIAN, "budget": 30, "pomd_budget": 10}}}, 200, 120
    ),
    "nystrom-ridge": Case(
        {
            "learner": {"kind": "nystrom-ridge", "config": {"kernel": GAUSSIAN, "clip": 1.0, "budget": 40}},
            "y_range": [-1.0, 1.0],
        },
        140,
        80,
    ),
    "nystrom-aar": Case(
        {
            "learner": {
                "kind": "nystrom-aar",
                "config": {"kernel": GAUSSIAN, "clip": 1.0, "half_life": 32, "dictionary": {"kind": "ald"}},
            },
            "y_range": [-1.0, 1.0],
        },
        140,
        80,
    ),
    "pool": Case(
        {
            "learner": {
                "kind": "pool",
                "config": {
                    "experts": [
                        {
                            "kind": "pros-n-kons",
                            "config": {"budget": 12, "loss": "squared-hinge"},
                            "sigmas": [0.5, 1.0],
                        },
                        {
                            "kind": "pros-n-kons",
                            "config": {"budget": 12, "loss": "logistic"},
                            "sigmas": [0.5],
                            "lags": 1,
                        },
                        {"kind": "ons", "config": {"loss": "squared-hinge"}},
                        {"kind": "bao2ks", "config": {"budget": 12}},
                    ]
                },
            }
        },
        90,
        60,
    ),
    "pros-n-kons": Case(
        {
            "learner": {
                "kind": "pros-n-kons",
                "config": {"kernel": GAUSSIAN, "loss": "logistic", "clip": 4.0, "half_life": 40, "budget": 50},
            }
        },
        150,
        90,
    ),
    "sketched-kons": Case(
        {
            "learner": {
                "kind": "sketched-kons",
                "config": {"kernel": GAUSSIAN, "loss": "logistic", "step": "adaptive", "window": 40},
            },
        },
        130,
        70,
        block=range(80, 110),
    ),
    "kernel-ridge": Case(
        {
            "learner": {"kind": "kernel-ridge", "config": {"kernel": GAUSSIAN, "regularization": 0.5, "clip": 1.0}},
            "labels": ["no", "yes"],
        },
        70,
        40,
    ),
    "kernel-aar": Case(
        {
            "learner": {"kind": "kernel-aar", "config": {"kernel": MEDIAN, "window": 32}},
            "y_range": [-2.0, 2.0],
            "scale": {"kind": "learned"},
            "warmup_rounds": 30,
        },
        90,
        60,
    ),
    "kernel-aioli": Case(
        {"learner": {"kind": "kernel-aioli", "config": {"kernel": GAUSSIAN, "window": 40}}, "labels": ["no", "yes"]},
        110,
        60,
    ),
    "nystrom-aioli": Case(
        {
            "learner": {
                "kind": "nystrom-aioli",
                "config": {"kernel": MEDIAN, "input_norm": "warmup", "budget": 40, "half_life": 64},
            },
            "scale": {"kind": "learned"},
            "warmup_rounds": 30,
        },
        140,
        80,
    ),
    "fourier-aioli": Case(
        {"learner": {"kind": "fourier-aioli", "seed": 3, "config": {"kernel": GAUSSIAN, "frequencies": 20}}},
        120,
        70,
    ),
    "kernel-ogd": Case(
        {
            "learner": {
                "kind": "kernel-ogd",
                "config": {
                    "kernel": GAUSSIAN,
                    "loss": "logistic",
                    "regularization": 0.01,
                    "norm_bound": 2.0,
                    "budget": 30,
                },
            }
        },
        150,
        90,
    ),
    "fogd": Case(
        {"learner": {"kind": "fogd", "seed": 3, "config": {"kernel": {"kind": "matern"}, "frequencies": 40}}},
        120,
        70,
        block=range(80, 110),
    ),
    "nogd": Case({"learner": {"kind": "nogd", "config": {"kernel": GAUSSIAN, "budget": 30}}}, 150, 90),
    "skegd": Case(
        {"learner": {"kind": "skegd", "seed": 5, "config": {"kernel": GAUSSIAN, "budget": 30, "cycle": 20}}},
        150,
        90,
        block=range(100, 130),
    ),
    "bao2ks": Case(
        {
            "learner": {
                "kind": "bao2ks",
                "seed": 4,
                "config": {"kernel": GAUSSIAN, "budget": 25, "reservoir": 6, "norm_bound": 8.0},
            }
        },
        150,
        90,
        block=range(100, 130),
    ),
    "packing": Case(
        {
            "learner": {"kind": "packing", "config": {"metric": [*[0.001] * 8, 1.0, 0.3]}},
            "y_range": [-1.0, 1.0],
            "scale": {"kind": "learned"},
            "warmup_rounds": 20,
        },
        150,
        90,
        block=range(100, 130),
    ),
    "metric-packing": Case(
        {
            "learner": {"kind": "metric-packing", "config": {"evaluation_points": 20}},
            "y_range": [-1.0, 1.0],
        },
        150,
        68,
        block=range(110, 140),
    ),
    "ahpatron": Case({"learner": {"kind": "ahpatron", "config": {"kernel": GAUSSIAN, "budget": 10}}}, 120, 60),
    "nons-ald": Case(
        {
            "learner": {"kind": "nons-ald", "config": {"kernel": GAUSSIAN, "step": "shipped", "threshold": 0.5}},
            "y_range": [-1.0, 1.0],
        },
        140,
        80,
    ),
    "aogd-ald": Case(
        {
            "learner": {
                "kind": "aogd-ald",
                "config": {"kernel": GAUSSIAN, "dictionary_size": 15, "budget": 40, "threshold": 0.3},
            },
            "y_range": [-1.0, 1.0],
        },
        140,
        80,
    ),
    "bogd": Case(
        {
            "learner": {
                "kind": "bogd",
                "config": {"kernel": GAUSSIAN, "loss": "logistic", "budget": 20, "regularization": 0.01},
            }
        },
        120,
        60,
    ),
    "aioli": Case(
        {
            "learner": {"kind": "aioli", "config": {"input_norm": "warmup", "half_life": 32}},
            "labels": ["no", "yes"],
            "warmup_rounds": 20,
        },
        100,
        50,
    ),
    "ons": Case(
        {"learner": {"kind": "ons", "config": {"loss": "squared-hinge", "clip": 2.0, "step": "adaptive"}}}, 90, 40
    ),
    "ftrl-logistic": Case({"learner": {"kind": "ftrl-logistic", "config": {"regularization": 0.01}}}, 60, 30),
    "ogd-logistic": Case(
        {"learner": {"kind": "ogd-logistic", "config": {"comparator_norm": 3.0}}, "labels": ["no", "yes"]}, 90, 40
    ),
    "foster-1d": Case(
        {"learner": {"kind": "foster-1d", "config": {"comparator_norm": 20.0, "nodes": 201}}}, 90, 40, inputs="first"
    ),
    "kons": Case(
        {"learner": {"kind": "kons", "config": {"kernel": GAUSSIAN, "loss": "squared-hinge", "step": "adaptive"}}},
        120,
        60,
        inputs="inferred names",
    ),
    "one-vs-rest": Case(
        {
            "learner": {
                "kind": "one-vs-rest",
                "config": {
                    "member": {"kind": "pros-n-kons", "config": {"kernel": GAUSSIAN, "loss": "logistic", "budget": 80}}
                },
            },
            "labels": ["hadron", "gamma", "gamma from aside"],
        },
        100,
        60,
        block=range(70, 90),
    ),
    "pool-of-classes": Case(
        {
            "learner": {"kind": "softmax-aioli", "config": {"half_life": "learned"}},
            "labels": ["hadron", "gamma", "gamma from aside"],
        },
        100,
        60,
        block=range(70, 90),
    ),
    "softmax-aioli": Case(
        {"learner": {"kind": "softmax-aioli"}, "labels": ["hadron", "gamma", "gamma from aside"]}, 100, 60
    ),
    "probabilities": Case(
        {"learner": {"kind": "kons", "config": {"kernel": GAUSSIAN, "loss": "logistic", "clip": 2.0}}}, 60, 30
    ),
    "named": Case(
        {
            "learner": {"kind": "pomdr", "config": {"kernel": MEDIAN, "budget": 40}},
            "schema": SCHEMA,
            "labels": ["no", "yes"],
            "scale": {"kind": "learned"},
            "warmup_rounds": 40,
        },
        150,
        75,
        inputs="schema",
    ),
    "warming-up": Case(
        {
            "learner": {"kind": "kons", "config": {"kernel": MEDIAN}},
            "y_range": [-2.0, 5.0],
            "scale": {"kind": "learned"},
            "warmup_rounds": 40,
        },
        80,
        20,
    ),
    "block": Case(
        {"learner": {"kind": "pomdr", "config": {"kernel": GAUSSIAN, "budget": 40, "pomd_budget": 15}}, "dim": 10},
        240,
        190,
        block=range(10, 170),
    ),
    "lags": Case(
        {
            "learner": {"kind": "pomdr", "lags": 3, "config": {"kernel": MEDIAN, "budget": 30, "pomd_budget": 10}},
            "labels": ["no", "yes"],
            "scale": {"kind": "learned"},
            "warmup_rounds": 25,
        },
        130,
        50,
        block=range(60, 100),
    ),
    "records": Case(
        {
            "learner": {"kind": "pros-n-kons", "config": {"kernel": MEDIAN, "budget": 30}},
            "schema": {"size.wide": "boolean"},
            "labels": ["no", "yes"],
            "strict": False,
            "scale": {"kind": "learned"},
            "warmup_rounds": 40,
        },
        120,
        70,
        inputs="records",
        block=range(41, 60),
    ),
    "hashed": Case(
        {
            "learner": {"kind": "ons", "config": {"loss": "squared-hinge"}},
            "hashed": 32,
            "strict": False,
            "scale": {"kind": "learned"},
            "warmup_rounds": 40,
        },
        60,
        30,
        inputs="records",
    ),
    "reservoir": Case(
        {
            "learner": {
                "kind": "pomdr",
                "seed": 4,
                "config": {"kernel": GAUSSIAN, "budget": 20, "pomd_budget": 8},
            },
            "reservoir": True,
        },
        100,
        30,
        block=range(40, 90),
    ),
}
