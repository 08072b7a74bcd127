"""What a client is told: of a round, of one that was sent again, of an id that is used, of a session."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from pydantic_core import from_json

from okl_core.types import F64
from service.errors import IdConflict, PredictionExpired
from service.hosted import HostedLearner, Pending
from service.journal import WaitingEntry, decode_waiting
from service.schemas import SessionCreate
from service.scorecard import mistakes
from service.store.base import AlreadyApplied, Head, Waiting


def update_answer(hosted: HostedLearner, pending: Pending) -> dict[str, Any]:
    answer: dict[str, Any] = {"t": hosted.t + 1, "loss": pending.loss}
    if hosted.truths.is_classifier:
        return answer | {"mistake": bool(pending.error)}
    return answer | {"error": (pending.entry.issued - pending.entry.y) * hosted.truths.unit}


def rounds_answer(hosted: HostedLearner, values: F64, probabilities: F64 | None, y: F64, loss: float) -> dict[str, Any]:
    answer: dict[str, Any] = {"t": hosted.t, "rounds": len(y), "loss": loss}
    truths = hosted.truths
    if not truths.is_classifier:
        return answer | {"values": [truths.from_learner(value) for value in values.tolist()]}
    if truths.classes and probabilities is not None:
        answer["labels"] = [truths.names[k] for k in probabilities.argmax(axis=1).tolist()]
    else:
        answer |= {"scores": values.tolist(), "labels": [truths.label(value) for value in values.tolist()]}
    answer["mistakes"] = int(np.count_nonzero(mistakes(truths, values, probabilities, y)))
    return answer if probabilities is None else answer | {"probabilities": probabilities.tolist()}


def duplicate(name: str, applied: AlreadyApplied, x: F64 | None, y: float | F64) -> dict[str, Any]:
    """The first answer of an update that was sent again. Raises IdConflict if it is not the same update."""
    first = from_json(applied.answer)
    first_x, first_y = first.pop("x"), first.pop("y")
    if x is not None and digest(x) != first_x:
        raise id_conflict(name, applied.id, "was used for another input")
    if first_y != (digest(y) if isinstance(y, np.ndarray) else y):
        raise id_conflict(name, applied.id, "was settled with another truth")
    return {"session": name, "id": applied.id} | first | {"duplicate": True}


def digest(x: F64) -> str:
    return hashlib.blake2b(x.tobytes(), digest_size=8).hexdigest()


def same_prediction(name: str, first: Waiting, entry: WaitingEntry, now: float) -> WaitingEntry:
    """The prediction that waits under this id already, if it is of the same input."""
    if first.expires_at <= now:
        raise expired(name, first)
    k, classes = (0 if part is None else len(part) for part in (entry.lags, entry.forecast.probabilities))
    held = decode_waiting(first.blob, k, classes)
    # A note says how an input was laid out before the first round fixed that; afterwards there is none.
    if held.x.tobytes() != entry.x.tobytes() or (entry.note and held.note != entry.note):
        raise id_conflict(name, first.id, "waits for the truth of another input")
    return held


def expired(name: str, waiting: Waiting) -> PredictionExpired:
    return PredictionExpired(
        f"Prediction {waiting.id!r} waited too long for its truth; send the input `x` with its `y`, "
        "and create sessions whose truths are late with a larger `expires_s`.",
        session=name,
        id=waiting.id,
    )


def id_conflict(name: str, used: str, how: str) -> IdConflict:
    return IdConflict(f"Id {used!r} {how}; use a new id for each round.", session=name, id=used)


def summary(head: Head, settings: SessionCreate) -> dict[str, Any]:
    """One line of the list of sessions."""
    return {
        "name": head.name,
        "kind": settings.learner.kind,
        "t": head.round,
        "waiting": head.waiting,
        "created_at": head.created_at,
        "updated_at": head.updated_at,
    }


def detail(head: Head, hosted: HostedLearner) -> dict[str, Any]:
    """Everything about one session."""
    layout = hosted.layout
    features = None if layout is None or layout.features is None else [item.model_dump() for item in layout.features]
    return summary(head, hosted.settings) | {
        "t": hosted.t,
        "learner": hosted.spec.model_dump(mode="json"),
        "settings": hosted.settings.model_dump(mode="json", by_alias=True, exclude={"name", "learner"}),
        "labels": list(hosted.truths.names) or None,
        "features": features,
        "dim": None if layout is None else layout.dim,
        "warming_up": hosted.warming_up,
        "frozen": None if hosted.frozen is None else hosted.frozen.model_dump(),
        "lags": None if hosted.lags is None else hosted.lags.tolist(),
        "metrics": hosted.metrics(),
        "describe": hosted.describe(),
        "bytes": hosted.nbytes,
        "storage": {
            "journal_rounds": head.journal_rounds,
            "journal_bytes": head.journal_bytes,
            "snapshot_round": head.snapshot_round if head.snapshot_round >= 0 else None,
            "snapshot_bytes": head.snapshot_bytes,
            "snapshot_at": head.snapshot_at,
        },
    }
