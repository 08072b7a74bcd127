"""What an invalid spec is told: the field by its path in the spec, and what it must be, in plain words."""

from __future__ import annotations

import math
from typing import Any

import pytest

from okl_core import create
from okl_core.contract.learner import get_learner, learner_kinds, parse_spec
from okl_core.errors import ConfigError

KERNEL = "config.kernel"


def _gaussian(**parameters: Any) -> dict[str, Any]:
    return {"kernel": {"kind": "gaussian", **parameters}}


@pytest.mark.parametrize(
    ("kind", "config", "told"),
    [
        ("aioli", {"comparator_norm": -1}, "config.comparator_norm: must be greater than 0, not -1"),
        ("aioli", {"comparator_norm": "1"}, "config.comparator_norm: must be a number, not '1'"),
        ("pomdr", {"norm_bound": math.inf}, "config.norm_bound: must be a finite number, not inf"),
        ("nystrom-ridge", {"budget": 0}, "config.budget: must be at least 1, not 0"),
        (
            "nystrom-ridge",
            {"budget": -(10**5000)},
            "config.budget: must be at least 1, not an integer of more than 16 digits",
        ),
        ("nystrom-ridge", {"budget": 2.5}, "config.budget: must be a whole number, not 2.5"),
        ("aioli", {"intercept": 1}, "config.intercept: must be true or false, not 1"),
        (
            "pros-n-kons",
            {"loss": None},
            "config.loss: must be 'squared', 'logistic', 'hinge' or 'squared-hinge', not null",
        ),
        ("packing", {"truth_range": [1]}, "config.truth_range: must have at least 2 items"),
        ("packing", {"truth_range": [1, "a"]}, "config.truth_range.1: must be a number, not 'a'"),
        (
            "auto",
            {"relevance": {"smooth": [1.0, 1.0], "steps": [1.0], "pairs": [1.0, 1.0]}},
            "config: relevance: `smooth`, `steps` and `pairs` each have one number per input",
        ),
        ("pool", {"experts": "mean"}, "config.experts: must be a list, not 'mean'"),
        ("pool", {"experts": []}, "config.experts: must have at least 1 item"),
        ("pomdr", {"kernel": 3}, f'{KERNEL}: must be an object, {{"kind": ...}}, not 3'),
        ("pomdr", {"kernel": {"sigma": 1.0}}, f'{KERNEL}: must say its `kind`: {{"kind": ...}}'),
        ("mean", {"rate": 1}, "config.rate: is unknown; known: none"),
        # A value of one type or another: one message, and no names of types in the path.
        ("pomdr", _gaussian(sigma=0), f"{KERNEL}.sigma: must be greater than 0 or 'median', not 0"),
        ("pomdr", _gaussian(sigma="mean"), f"{KERNEL}.sigma: must be a number or 'median', not 'mean'"),
        ("packing", {"metric": 3}, "config.metric: must be 'identity' or a list, not 3"),
        ("packing", {"metric": []}, "config.metric: must be 'identity' or have at least 1 item, not a list"),
        (
            "aioli",
            {"regularization": 10**400},
            "config.regularization: must be a number, not an integer of more than 16 digits",
        ),
        (
            "pomdr",
            {"pomd_budget": 10**400},
            "config.pomd_budget: is an integer of more than 150 digits; a number is 0, or from 1e-150 to 1e+150 in size",
        ),
        ("pros-n-kons", _gaussian(metric={"a": 1}), f"{KERNEL}.metric: must be a list or 'learned', not an object"),
        ("one-vs-rest", {"member": {"kind": "aioli", "config": {"clip": 0}}}, "config.member.config.clip: "),
        (
            "one-vs-rest",
            {"member": {"kind": "pomdrr"}},
            "config.member.kind: unknown learner kind 'pomdrr'; did you mean `pomdr`? Known: ",
        ),
        (
            "pool",
            {"experts": ["mean", {"kind": "pomdr", "config": {"budget": -1}}]},
            "config.experts.1.config.budget: must be at least 2, not -1",
        ),
        (
            "pool",
            {"experts": [{"kind": "ons", "sigmas": [1.0]}]},
            "config.experts.0: ons has no kernel; leave sigmas out",
        ),
        # Inside a grid.
        (
            "pool",
            {"experts": [{"kind": "kons", "sigmas": [1.0, 0]}]},
            "config.experts.0.sigmas.1: must be greater than 0, not 0",
        ),
        (
            "pool",
            {"experts": ["mean", {"kind": "pros-n-kons", "sigmas": [1.0, 1e-200], "half_lives": [9, None]}]},
            "config.experts.1.sigmas.1: ",
        ),
        (
            "pool",
            {"experts": [{"kind": "fogd", "sigmas": [1.0], "config": {"frequencies": -1}}]},
            "config.experts.0.config.frequencies: must be at least 1, not -1",
        ),
        (
            "pool",
            {"experts": ["mean", {"kind": "pomdrr", "half_lives": [16]}]},
            "config.experts.1.kind: unknown learner kind 'pomdrr'; did you mean `pomdr`? Known: ",
        ),
        (
            "pool",
            {"experts": ["mean", {"kind": "pomdrr", "config": {"half_life": "learned"}}]},
            "config.experts.1.kind: unknown learner kind 'pomdrr'; did you mean `pomdr`? Known: ",
        ),
        ("pool", {"experts": ("mean", "ons")}, "config.experts: must be a list, not a tuple"),
        # What no array can hold.
        (
            "fourier-aioli",
            {"frequencies": 2**53},
            "config.frequencies: must be at most 32768, not 9007199254740992",
        ),
        (
            "nogd",
            {"rank": 10**100},
            "config.rank: must be at most 2000, not an integer of more than 16 digits",
        ),
    ],
)
def test_a_wrong_field_is_told_in_plain_words(kind: str, config: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        create({"kind": kind, "config": config}, 2)
    assert str(caught.value).startswith(f"{kind}: {told}")
    if not told.endswith((": ", "is unknown")):
        assert str(caught.value) == f"{kind}: {told}"


def test_a_spec_is_told_what_it_lacks() -> None:
    with pytest.raises(ConfigError, match=r"^spec: kind: is missing$"):
        create({"config": {}}, 2)


def test_no_refusal_of_any_config_is_in_pydantics_words() -> None:
    values: tuple[Any, ...] = (
        -1,
        0,
        2.5,
        math.nan,
        "x",
        "",
        True,
        None,
        [],
        {},
        [[]],
        {"kind": "x"},
        {"kind": "gaussian"},
    )
    for kind in learner_kinds():
        for name in get_learner(kind).config_type.model_fields:
            for told in filter(None, (_refusal({"kind": kind, "config": {name: value}}) for value in values)):
                assert name in told
                assert not any(word in told for word in ("should", "valid", "Input", "constrained", "[")), told


def _refusal(spec: dict[str, Any]) -> str | None:
    try:
        parse_spec(spec)
    except ConfigError as error:
        return str(error)
    return None
