"""Every registered learner keeps the contract, and the checks catch learners that do not."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest

from okl_core import catalogue, learner_kinds, register
from okl_core.contract.checks import (
    CHECKS,
    Check,
    ContractViolation,
    check_bad_input_changes_nothing,
    check_copies,
    check_extreme_inputs,
    check_forecast_is_blind,
    check_lags,
    check_learner,
    check_play_is_pure,
    check_replay,
    check_run_equals_updates,
    check_state_bytes,
    check_state_is_everything,
    make_subject,
)
from okl_core.contract.subject import Subject
from okl_core.errors import ConfigError
from tests.contract.broken import BROKEN, Sleepy
from tests.contract.broken.sleepy import Weights

REFERENCES = Path(__file__).parents[2] / "docs" / "references.md"

GAUSSIAN = {"kind": "gaussian", "sigma": "median"}

METRIC = [[1.0, 0.3, 0.0], [0.3, 0.5, 0.0], [0.0, 0.0, 0.01]]
LEARNED = {"kind": "gaussian", "sigma": "median", "metric": "learned"}

VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "auto": {
        "numbers": {"truth": "numbers"},
        "three": {"classes": 3, "budget": 12, "half_life": 16, "window": 20},
        "short": {"truth": "numbers", "budget": 12, "half_life": 16, "window": 1},
    },
    "kons": {
        "squared": {"loss": "squared", "clip": 2.0, "kernel": GAUSSIAN},
        "logistic": {"loss": "logistic", "kernel": GAUSSIAN},
        "squared-hinge": {"loss": "squared-hinge", "kernel": GAUSSIAN},
        "adaptive": {"loss": "squared", "step": "adaptive", "kernel": {"kind": "matern", "nu": 2.5}},
        "inverse-sqrt": {"loss": "logistic", "step": "inverse-sqrt", "kernel": {"kind": "laplacian"}},
        "window": {"loss": "squared-hinge", "step": "adaptive", "kernel": GAUSSIAN, "window": 30},
        "half-life": {"loss": "squared-hinge", "kernel": GAUSSIAN, "half_life": 16},
        "metric": {"loss": "squared", "kernel": {"kind": "matern", "metric": METRIC}},
    },
    "sketched-kons": {
        "logistic": {"loss": "logistic", "kernel": GAUSSIAN, "oversampling": 1.0},
        "hinge": {"loss": "hinge", "step": 0.5, "kernel": {"kind": "matern"}},
        "window": {"step": "adaptive", "kernel": GAUSSIAN, "oversampling": 1.0, "window": 30},
        "half-life": {"kernel": GAUSSIAN, "oversampling": 1.0, "half_life": 8},
    },
    "kernel-ridge": {
        "clip": {"clip": 0.5, "regularization": 0.1, "kernel": GAUSSIAN},
        "window": {"window": 30, "kernel": GAUSSIAN},
        "half-life": {"half_life": 8, "kernel": GAUSSIAN},
    },
    "kernel-aar": {
        "clip": {"clip": 0.5, "regularization": 0.1, "kernel": {"kind": "laplacian"}},
        "window": {"window": 1, "kernel": GAUSSIAN},
        "half-life": {"half_life": 17, "kernel": {"kind": "laplacian"}},
    },
    "kernel-aioli": {
        "paper": {"curvature": "paper", "comparator_norm": 3.0, "input_norm": 2.0, "kernel": {"kind": "laplacian"}},
        "window": {"window": 30, "kernel": GAUSSIAN},
        "half-life": {"half_life": 8, "kernel": GAUSSIAN},
    },
    "nystrom-aioli": {
        "forgetting": {"kernel": GAUSSIAN, "budget": 12, "half_life": 16, "input_norm": "warmup"},
        "ald": {"carry": "reset", "dictionary": {"kind": "ald"}, "kernel": {"kind": "laplacian"}},
        "metric": {"kernel": LEARNED, "input_norm": "warmup", "budget": 12, "curvature": "exact"},
    },
    "fourier-aioli": {
        "narrow": {"kernel": GAUSSIAN, "frequencies": 15, "half_life": 16},
        "wide": {"kernel": {"kind": "matern"}, "regularization": 0.5, "frequencies": 70},
    },
    "nystrom-aar": {"budget": {"kernel": GAUSSIAN, "clip": 2.0, "budget": 12}},
    "nystrom-ridge": {
        "forgetting": {"kernel": GAUSSIAN, "half_life": 16},
        "ald": {"clip": 1.5, "carry": "reset", "dictionary": {"kind": "ald"}, "kernel": {"kind": "laplacian"}},
    },
    "pool": {
        "numbers": {"truth": "numbers", "clip": 2.0, "share": 0.0},
        "logistic": {
            "loss": "logistic",
            "clip": 4.0,
            "experts": [
                {"kind": "pros-n-kons", "config": {"loss": "logistic", "clip": 4.0}, "sigmas": [0.5, 2.0]},
                {"kind": "pros-n-kons", "config": {"loss": "logistic", "half_life": 8}, "sigmas": [0.5], "lags": 2},
                {"kind": "sketched-kons", "config": {"loss": "logistic"}},
                {"kind": "pomdr", "config": {"budget": 20, "pomd_budget": 6}, "lags": 1},
            ],
        },
        "exponential": {"aggregation": "exponential", "experts": [{"kind": "kernel-ogd"}, {"kind": "bao2ks"}]},
        "classes": {
            "truth": "classes",
            "classes": 4,
            "experts": [
                {"kind": "softmax-aioli", "half_lives": [16, None]},
                {
                    "kind": "one-vs-rest",
                    "config": {"member": {"kind": "pros-n-kons", "config": {"loss": "logistic", "half_life": 16}}},
                },
            ],
        },
    },
    "one-vs-rest": {
        "four": {"classes": 4},
        "sampled": {
            "classes": 3,
            "member": {"kind": "pros-n-kons", "config": {"loss": "logistic", "kernel": GAUSSIAN, "half_life": 16}},
        },
        "majority": {"classes": 3, "member": {"kind": "majority"}},
        "pools": {
            "classes": 3,
            "member": {"kind": "pool", "config": {"experts": [{"kind": "ons", "config": {"loss": "squared"}}]}},
        },
    },
    "softmax-aioli": {
        "four": {"classes": 4, "comparator_norm": 3.0},
        "aioli": {"classes": 3, "hedge": 1.0, "intercept": False, "regularization": 0.5},
        "forgetting": {"classes": 3, "half_life": 16},
        "learned": {"classes": 3, "half_life": "learned"},
    },
    "pros-n-kons": {
        "squared": {"clip": 2.0, "kernel": GAUSSIAN, "half_life": 16},
        "logistic": {"loss": "logistic", "kernel": GAUSSIAN, "budget": 12},
        "published": {"carry": "reset", "step": "half-curvature", "budget": None, "kernel": GAUSSIAN},
        "ald": {
            "loss": "squared-hinge",
            "dictionary": {"kind": "ald", "threshold": 0.3},
            "kernel": {"kind": "laplacian"},
        },
        "inverse-sqrt": {"loss": "hinge", "kernel": {"kind": "matern"}, "step": "inverse-sqrt"},
    },
    "packing": {
        "diagonal": {"metric": [1.0, 0.1, 0.01], "truth_range": [-2.0, 1.0]},
        "full": {"metric": [[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.2]], "include_center": False},
        "linear": {"estimate": "linear", "slope_regularization": 0.1, "include_center": False},
    },
    "metric-packing": {
        "published": {"refeed": False, "spread": False, "memory": None, "min_count": "published"},
        "restart": {"refeed": False, "evaluation_points": 40, "metric_regularization": 0.5},
        "at once": {"spread": False, "truth_range": [-2.0, 1.0], "include_center": False},
        "final": {"memory": 64, "bandwidth": 3.0},
        "linear": {"estimate": "linear", "slope_regularization": 1e-3, "evaluation_points": 40},
    },
    "kernel-ogd": {
        "plain": {"step_size": 0.3, "norm_bound": None, "kernel": GAUSSIAN},
        "NORMA": {"step_size": 0.5, "regularization": 0.1, "norm_bound": None, "budget": 25, "kernel": GAUSSIAN},
        "ball": {"loss": "logistic", "norm_bound": 1.5, "budget": 20, "kernel": {"kind": "laplacian"}},
        "squared": {"loss": "squared", "clip": 2.0, "norm_bound": 3.0, "kernel": {"kind": "polynomial"}},
        "Pegasos": {
            "loss": "squared-hinge",
            "step_size": "inverse-t",
            "regularization": 0.05,
            "kernel": {"kind": "linear"},
        },
    },
    "aioli": {
        "published": {"curvature": "paper", "input_norm": "warmup", "regularization": 1.0},
        "sure": {"comparator_norm": 20.0, "regularization": 1e-4, "intercept": False, "curvature": "exact"},
        "forgetting": {"half_life": 16, "input_norm": 2.0},
    },
    "ons": {
        "adaptive": {"loss": "squared", "step": "adaptive", "clip": 2.0, "intercept": False},
        "forgetting": {"loss": "squared-hinge", "clip": 2.0, "half_life": 16},
        "logistic": {"loss": "logistic", "step": "inverse-sqrt"},
        "hinge": {"loss": "hinge", "step": 0.5, "regularization": 0.1},
    },
    "ftrl-logistic": {
        "weak": {"regularization": 1e-6, "intercept": False},
    },
    "ogd-logistic": {
        "small ball": {"comparator_norm": 0.1, "intercept": False},
        "known norm": {"comparator_norm": 20.0, "input_norm": 2.0},
    },
    "foster-1d": {
        "factors carried over": {"comparator_norm": 50.0, "nodes": 201},
        "smoothed": {"comparator_norm": 4.0, "nodes": 11, "smoothing": 0.1},
    },
    "pomdr": {
        "removal": {"budget": 20, "pomd_budget": 6, "window": 4, "kernel": {"kind": "gaussian", "sigma": 0.3}},
        "wide": {"budget": 40, "pomd_budget": 10, "kernel": {"kind": "gaussian", "sigma": 3.0}},
    },
    "fogd": {
        "published": {"kernel": GAUSSIAN, "step_size": "horizon", "step_factor": 10.0, "horizon": 150},
        "logistic": {"loss": "logistic", "kernel": {"kind": "laplacian"}, "frequencies": 20},
        "squared": {"loss": "squared", "step_size": 0.2, "clip": 2.0, "kernel": {"kind": "matern", "nu": 2.5}},
        "squared-hinge": {"loss": "squared-hinge", "step_size": "horizon", "step_factor": 1.0, "frequencies": 1},
    },
    "nogd": {
        "embedded": {"kernel": GAUSSIAN, "budget": 20},
        "first": {"kernel": GAUSSIAN, "budget": 30, "buffer": "first", "step_size": 0.5},
        "full-rank": {"loss": "logistic", "kernel": {"kind": "matern"}, "budget": 25, "rank": 25},
        "squared": {"loss": "squared", "step_factor": 0.5, "kernel": {"kind": "laplacian"}, "budget": 16},
        "squared-hinge": {"loss": "squared-hinge", "step_size": 0.2, "budget": 2, "rank": 1},
    },
    "skegd": {
        "transport": {"budget": 20, "cycle": 7, "kernel": GAUSSIAN},
        "match": {"budget": 24, "cycle": 5, "carry": "match", "step_size": 0.3, "kernel": {"kind": "matern"}},
        "logistic": {"budget": 16, "loss": "logistic", "buffer": "first", "kernel": {"kind": "laplacian"}},
        "squared": {
            "budget": 10,
            "loss": "squared",
            "rank": 3,
            "landmarks": 5,
            "cycle": 3,
            "kernel": {"kind": "linear"},
        },
    },
    "bao2ks": {
        "restarts": {"budget": 12, "reservoir": 4, "kernel": GAUSSIAN},
        "projects": {
            "budget": 40,
            "reservoir": 6,
            "norm_bound": 1.0,
            "thinning": 1.0,
            "kernel": {"kind": "polynomial"},
        },
        "one slot": {"budget": 3, "reservoir": 1, "step_size": 0.5, "kernel": {"kind": "laplacian"}},
    },
    "ahpatron": {
        "halves": {"kernel": GAUSSIAN, "budget": 8},
        "every margin": {"slack": 0.0, "ridge": 0.1, "budget": 2, "kernel": {"kind": "polynomial"}},
    },
    "nons-ald": {
        "shipped": {"kernel": GAUSSIAN, "step": "shipped", "clip": 0.5, "threshold": 0.1},
        "budget": {"kernel": {"kind": "laplacian"}, "clip": 2.0, "budget": 5, "threshold": 0.01},
        "metric": {"kernel": {"kind": "matern", "metric": METRIC}, "regularization": 0.1, "horizon": 60},
        "half-life": {"kernel": GAUSSIAN, "half_life": 10},
    },
    "aogd-ald": {
        "phase 2": {"kernel": GAUSSIAN, "dictionary_size": 8, "threshold": 0.1},
        "budget": {"kernel": {"kind": "laplacian"}, "norm_bound": 1.0, "dictionary_size": 6, "budget": 12},
        "polynomial": {"kernel": {"kind": "polynomial"}, "norm_bound": 5.0, "threshold": 0.01},
    },
    "bogd": {
        "removal": {"kernel": GAUSSIAN, "budget": 20, "regularization": 0.05},
        "plain": {"step_size": 0.5, "coefficient_bound": None, "budget": 15},
        "logistic": {"loss": "logistic", "kernel": {"kind": "laplacian"}, "budget": 10, "step_factor": 2.0},
        "squared": {"loss": "squared", "step_size": 0.2, "clip": 2.0, "kernel": {"kind": "matern"}, "budget": 2},
    },
}
"""Configs beside the default that reach other branches of a learner within a short stream."""

OF_THE_CONFIG = (
    check_play_is_pure,
    check_forecast_is_blind,
    check_run_equals_updates,
    check_state_is_everything,
    check_copies,
    check_replay,
    check_state_bytes,
    check_extreme_inputs,
)
"""What another branch of a learner may break. The other clauses are about the kind, or follow from these."""

OF_THE_DIMENSION = (
    check_forecast_is_blind,
    check_run_equals_updates,
    check_state_is_everything,
    check_lags,
    check_bad_input_changes_nothing,
    check_extreme_inputs,
)
"""What an input of one number may break."""

OF_SUMS = (
    check_forecast_is_blind,
    check_run_equals_updates,
    check_state_is_everything,
    check_replay,
    check_lags,
    check_extreme_inputs,
)
"""What may hold with one way of summing products and not with another."""

OF_ALL_SUMS = tuple(check for check in CHECKS if check not in OF_SUMS)
"""The rest, which `make test-kernels` leaves out."""


LONG = 120
"""Rounds in the default configs: past 64 rows of a factor, and several doublings of what grows."""

SHORT = 70
"""Rounds that reach what a variant is for: past its window, its budget, a half-life, and 64 rows of a factor."""

OF_OTHERS = ("auto", "one-vs-rest", "pool")
"""Made of other learners, as is one that learns its half-life: each part runs longer by itself, so fewer rounds do."""

OF_FIXED_SIZE = ("softmax-aioli",)
"""Searches for a minimum in every round, and has nothing that grows with them: fewer do."""


def rounds_of(kind: str, rounds: int, config: dict[str, Any] | None = None) -> int:
    if (config or {}).get("half_life") == "learned":
        return rounds // 3
    return rounds // 2 if kind in OF_OTHERS + OF_FIXED_SIZE else rounds


@functools.lru_cache(maxsize=2)
def subject_of(kind: str) -> Subject:
    """One for all checks of a kind, which then compare with one recording."""
    return make_subject(kind, rounds=rounds_of(kind, LONG))


def clause_of(check: Check) -> str:
    return check.__name__.removeprefix("check_")


@pytest.mark.parametrize("check", OF_SUMS, ids=clause_of)
@pytest.mark.parametrize("kind", learner_kinds())
def test_contract(kind: str, check: Check) -> None:
    check(subject_of(kind))


@pytest.mark.parametrize("check", OF_ALL_SUMS, ids=clause_of)
@pytest.mark.parametrize("kind", learner_kinds())
def test_contract_of_all_kernels(kind: str, check: Check) -> None:
    check(subject_of(kind))


@pytest.mark.parametrize(
    ("kind", "config"),
    [pytest.param(kind, config, id=f"{kind}-{name}") for kind in VARIANTS for name, config in VARIANTS[kind].items()],
)
def test_contract_with_other_configs(kind: str, config: dict[str, Any]) -> None:
    check_learner(kind, config, rounds=rounds_of(kind, SHORT, config), checks=OF_THE_CONFIG)


@pytest.mark.parametrize("kind", learner_kinds())
def test_contract_in_one_dimension_with_another_seed(kind: str) -> None:
    check_learner(kind, dim=1, seed=7, rounds=rounds_of(kind, 50), checks=OF_THE_DIMENSION)


@pytest.mark.parametrize("entry", catalogue(), ids=lambda entry: entry["kind"])
def test_audit(entry: dict[str, Any]) -> None:
    known = set(re.findall(r"^### (\w+)$", REFERENCES.read_text(), flags=re.MULTILINE))
    assert set(entry["references"]) <= known
    assert entry["references"] or entry["kind"] in ("last-label", "mean"), "a learner says where it comes from"
    assert entry["summary"].endswith("."), "the first line of the docstring is a sentence"


def test_variants_name_registered_kinds() -> None:
    assert set(VARIANTS) <= set(learner_kinds())


@pytest.mark.usefixtures("own_registry")
def test_third_party_learner() -> None:
    register(Sleepy)
    [entry] = [entry for entry in catalogue() if entry["kind"] == "sleepy"]
    assert entry["defaults"] == {"step_size": 0.1, "attention": 0.7}
    assert entry["target"] == "binary"
    assert json.loads(json.dumps(entry)) == entry
    check_learner("sleepy", {"attention": 0.3}, dim=5)


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("name", ["dim", "lags"])
def test_a_field_with_a_name_of_the_library_is_refused(name: str) -> None:
    """`state` replaced its array by the library's, and `restore` then missed it."""
    state_type = make_dataclass("Named", [(name, float)], bases=(Weights,))
    with pytest.raises(ConfigError, match=f"sleepy: the name '{name}' in a state is the library's"):
        register(type("Named", (Sleepy,), {"state_type": state_type}))
    assert "sleepy" not in learner_kinds()


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize(("cls", "check"), BROKEN, ids=lambda value: value.__name__)
def test_broken_learner_is_caught(cls: type[Sleepy], check: Check) -> None:
    register(cls)
    with pytest.raises(ContractViolation, match=check.__name__):
        check_learner(cls.kind, checks=(check,))


def test_broken_learners_cover_the_checks() -> None:
    # The library itself does what these checks cover, so no learner can break them.
    of_the_library = {check_bad_input_changes_nothing, check_lags}
    assert {check for _, check in BROKEN} == set(CHECKS) - of_the_library
