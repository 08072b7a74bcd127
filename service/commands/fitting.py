"""Sessions that fit a file: whether its truths are labels or numbers, and the settings that follow from that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from okl.answers import label_key
from okl_core import parse_spec
from okl_core.contract.truth_choice import for_truths
from okl_core.errors import OklError
from okl_core.types import MAX_CLASSES, Target

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


def misfit(recording: Recording, session: Mapping[str, Any]) -> str | None:
    """Why the truths cannot be those of a session, as a service describes it; None if they may be."""
    # A session without declared labels collects them, so it has those of all its rounds, and may get more.
    is_whole = session["t"] >= recording.count
    labels = session["labels"] if is_whole else session["settings"]["labels"]
    if labels is None:
        if recording.are_numbers or not session["t"] or "rmse" not in session["metrics"]:
            return None
        return "it learns numbers, but the label column has others"
    if recording.truths is None:
        return f"it learns labels, but the label column has over {MAX_CLASSES} values"
    known = set(map(label_key, labels))
    strange = next((truth for truth in recording.truths if label_key(truth) not in known), None)
    return None if strange is None else f"{strange!r:.100} in the label column is none of its labels"


def _target(spec: Any) -> Target | None:
    """What a learner takes; None for an invalid spec, and for one that only a service knows."""
    try:
        _, algorithm, config = parse_spec(spec)
    except OklError:
        return None
    return algorithm.target(config)
