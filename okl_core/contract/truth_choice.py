"""Labels or numbers, for a learner of either such as `auto`, whose config says which."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from okl_core.contract.learner import get_learner
from okl_core.errors import UnknownKind


def for_truths(spec: Any, *, has_labels: bool) -> Any:
    """The spec as an object, with `truth` in the config if the learner has that and the spec leaves it out.

    An invalid or unknown spec stays as it is, for `parse_spec`, or the service that it is sent to, to judge.
    """
    given = {"kind": spec} if isinstance(spec, str) else spec
    if not isinstance(given, Mapping):
        return given
    kind, config = given.get("kind"), given.get("config") or {}
    if isinstance(kind, str) and isinstance(config, Mapping):
        with suppress(UnknownKind):
            return {**given, "config": _truth_of(kind, has_labels=has_labels) | dict(config)}
    return given


def _truth_of(kind: str, *, has_labels: bool) -> dict[str, Any]:
    """The config entry that selects labels or numbers, empty for a learner of only one. Raises UnknownKind."""
    truth = get_learner(kind).config_type.model_fields.get("truth")
    if truth is None:
        return {}
    return {"truth": ("classes" if truth.default == "classes" else "labels") if has_labels else "numbers"}
