"""Checks of a learner's self-description: its kind, its config, its numbers and the work it announces."""

from __future__ import annotations

import itertools
import json
import math
import re

from okl_core.contract.agreement import Raises, clause, require, same_arrays
from okl_core.contract.facade import create
from okl_core.contract.learner import get_learner, parse_spec
from okl_core.contract.state import DIM, pack
from okl_core.contract.subject import Subject
from okl_core.errors import ConfigError


@clause
def check_identity(subject: Subject) -> None:
    """The kind is kebab-case; the learner has a summary and references, but no instance attributes."""
    learner = get_learner(subject.spec.kind)
    is_kebab = re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", learner.kind) is not None
    require(is_kebab, f"the kind {learner.kind!r} is not kebab-case")
    require(learner.kind == subject.spec.kind, f"registered as {subject.spec.kind!r}, called {learner.kind!r}")
    require(bool((type(learner).__doc__ or "").strip()), "the class has no docstring; its first line is the summary")
    require(isinstance(learner.references, tuple), "references must be a tuple of citation keys")
    subject.after(subject.half)
    require(not getattr(learner, "__dict__", {}), f"the learner keeps fields: {sorted(vars(learner))}; use the state")


@clause
def check_config_schema(subject: Subject) -> None:
    """The config's JSON schema describes every field; the defaults validate, unknown fields do not."""
    config_type = get_learner(subject.spec.kind).config_type
    schema = json.loads(json.dumps(config_type.model_json_schema()))
    for owner, properties in [("the config", schema), *schema.get("$defs", {}).items()]:
        for name, field in properties.get("properties", {}).items():
            require("description" in field or "const" in field, f"{owner}: the field {name!r} has no description")
    defaults = config_type()
    again = config_type.model_validate(defaults.model_dump(mode="json"))
    require(again == defaults, f"the defaults change on the way through JSON: {defaults!r}, {again!r}")
    unknown = {"kind": subject.spec.kind, "config": {"no_such_field": 1}}
    with Raises(ConfigError, "a config with an unknown field"):
        create(unknown, subject.dim)


@clause
def check_describe(subject: Subject) -> None:
    """`describe` returns finite numbers of Python, including `t`, `dictionary` and `bytes`, and changes nothing."""
    half = subject.half
    # `run`, and then a truth as an array has it.
    blocked = subject.create()
    blocked.run(subject.X[:half], subject.y[:half])
    blocked.update(subject.X[half], subject.y[half])
    learners = {stop: subject.after(stop) for stop in (0, 1, half)} | {half + 1: blocked}
    for stop, learner in learners.items():
        before = learner.state()
        numbers = learner.describe()
        same_arrays(before, learner.state(), "describe changed the state")
        for name in ("t", "dictionary", "bytes"):
            require(name in numbers, f"describe has no {name!r}")
        for name, value in numbers.items():
            is_plain = type(value) in (int, float) and math.isfinite(value)
            require(is_plain, f"after {stop} rounds describe gives {name} = {value!r}")
        require(numbers["t"] == stop, f"after {stop} rounds describe gives t = {numbers['t']}")


@clause
def check_announcements(subject: Subject) -> None:
    """`extra_work` is finite, does not fall with more rounds, and changes nothing; `conditioning` is at least 1."""
    _, algorithm, config = parse_spec(subject.spec)
    for stop in (0, 1, subject.half):
        arrays = {name: array for name, array in subject.recording.states[stop].items() if name != DIM}
        state = algorithm.unpack(config, arrays)
        work = [algorithm.extra_work(config, state, rounds) for rounds in (1, 2, 10, 100, 10**6)]
        is_growing = all(a <= b for a, b in itertools.pairwise([0.0, *work]))
        require(is_growing and math.isfinite(work[-1]), f"after {stop} rounds the work ahead is {work}")
        same_arrays(arrays, pack(state), "extra_work changed the state")
        condition = algorithm.conditioning(config, state)
        require(condition >= 1.0, f"after {stop} rounds the conditioning is {condition}, not a number from 1 on")
