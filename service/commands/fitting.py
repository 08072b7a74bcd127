"""Sessions that fit a file: whether its truths are labels or numbers, and the settings that follow from that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from okl_core import parse_spec
from okl_core.contract.truth_choice import for_truths
from okl_core.errors import OklError
from okl_core.types import Target

from .recording import Recording


def decided(recording: Recording, specs: Sequence[Any]) -> Recording:
    """The recording with truths that are labels to all of these learners, or numbers to all.

    Numbers become labels if a learner takes labels of any number, and none takes numbers.
    """
    if recording.has_labels or recording.truths is None:
        return recording
    targets = {_target(for_truths(spec, has_labels=False)) for spec in specs}
    return replace(recording, are_numbers=False) if "class" in targets and "real" not in targets else recording


def fitted(recording: Recording, spec: Any) -> tuple[Any, dict[str, Any]]:
    """The spec for the recording's truths, and the settings of a session for them. Raises ConfigurationError."""
    found = for_truths(spec, has_labels=recording.has_labels)
    # As in a session without a learner, `auto` gets no range.
    has_range = not (_target(found) == "real" and found["kind"] == "auto")
    return found, recording.settings(with_range=has_range)


def _target(spec: Any) -> Target | None:
    """What a learner takes; None for an invalid spec, and for one that only a service knows."""
    try:
        _, algorithm, config = parse_spec(spec)
    except OklError:
        return None
    return algorithm.target(config)
