"""The same request sent again: what is remembered under an id, and when the second request is the first."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import from_json, to_json

from okl.errors import IdConflict, PredictionExpired, StateCorrupt
from okl_core.records.record import Raws, to_bytes

from ..store.base import Applied
from .codec import WaitingEntry, decode_answer, encode_answer, encode_inputs
from .definition import Scalar
from .requests import Batch, Columns, RoundsPlayed, Updated

REMEMBERED_BYTES = 4096
"""A larger answer is remembered without the forecasts of its rounds."""

_NOT_KEPT = ("session", "id", "is_duplicate", "columns")


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def digest_of_inputs(raws: Raws) -> str:
    return digest(encode_inputs(raws))


def _truths(ys: Sequence[Scalar]) -> Scalar | str:
    """A truth in the client's words, 1 and 1.0 being one; of several a digest."""
    plain = [float(y) if isinstance(y, int) and not isinstance(y, bool) else y for y in ys]
    return plain[0] if len(plain) == 1 else digest(to_json(plain))


def remember(identity: bytes, id: str, told: Updated | RoundsPlayed, raws: Raws, ys: Sequence[Scalar]) -> bytes:
    """What is kept of the answer to a round, or to a block of them: enough to say it again, and to know the request."""
    known = {name: value for name, value in told._asdict().items() if value is not None and name not in _NOT_KEPT}
    request = {"x": digest_of_inputs(raws), "y": _truths(ys)}
    document = to_json(known | (told.columns.told() if isinstance(told, RoundsPlayed) else {}) | request)
    if len(document) > REMEMBERED_BYTES:
        document = to_json(known | request)
    return encode_answer(identity, id, document)


def told_again(
    kind: type[Updated] | type[RoundsPlayed],
    name: str,
    identity: bytes,
    applied: Applied,
    raws: Raws | None,
    ys: Sequence[Scalar],
) -> Updated | RoundsPlayed:
    """The first answer of a request that was sent again. Raises IdConflict if it is not the same request."""
    if is_progress(identity, applied):
        raise id_conflict(name, applied.id, "was used for another kind of request")
    told, first_x, first_y = told_first(name, identity, applied)
    if not isinstance(told, kind):
        raise id_conflict(name, applied.id, "was used for another kind of request")
    if raws is not None and digest_of_inputs(raws) != first_x:
        raise id_conflict(name, applied.id, "was used for another input")
    if first_y != _truths(ys):
        raise id_conflict(name, applied.id, "was settled with another truth")
    return told


def told_first(name: str, identity: bytes, applied: Applied) -> tuple[Updated | RoundsPlayed, object, object]:
    """What is remembered: the answer, and the input and the truths of its request. Raises StateCorrupt."""
    try:
        first: dict[str, Any] = from_json(decode_answer(identity, applied.id, applied.answer))
        x, y = first.pop("x"), first.pop("y")
        kind = RoundsPlayed if "rounds" in first else Updated
        if kind is RoundsPlayed:
            first["columns"] = Columns(**{name: first.pop(name) for name in Columns._fields if name in first})
        return kind(session=name, id=applied.id, is_duplicate=True, **first), x, y
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateCorrupt(f"What is remembered under id {applied.id!r} cannot be read.", session=name) from error


def progress_of(identity: bytes, batch: Batch) -> Applied | None:
    """What is remembered of a body when this block of it is learned: that outlasts what is remembered of its first blocks."""
    if batch.place is None:
        return None
    _, block, row = batch.place
    document = to_json({"blocks": block + 1, "rounds": row + len(batch.y)})
    return Applied(batch.place.body_id, encode_answer(identity, batch.place.body_id, document))


def is_progress(identity: bytes, applied: Applied) -> bool:
    """Is it remembered of a body how far it has come, and not an answer? Raises StateCorrupt."""
    return decode_answer(identity, applied.id, applied.answer).startswith(b'{"blocks":')


def check_progress(name: str, identity: bytes, batch: Batch, known: Mapping[str, object]) -> None:
    """Raises IdConflict for a block that was learned as far as is known of its body, and is remembered no more."""
    place = batch.place
    found = None if place is None else known.get(place.body_id)
    if place is None or found is None:
        return
    if not isinstance(found, Applied):
        raise id_conflict(name, place.body_id, "waits for the truth of a prediction")
    if not is_progress(identity, found):
        raise id_conflict(name, found.id, "was used for another kind of request")
    so_far: dict[str, int] = from_json(decode_answer(identity, found.id, found.answer))
    blocks, applied = so_far["blocks"], so_far["rounds"]
    if blocks > place.block:
        told = (
            f"The first {applied} lines under key {place.key!r} were learned, and what was told of the oldest is "
            "remembered no more; send the lines after them, under another key."
        )
        raise IdConflict(told, session=name, id=place.key, applied=applied)


def same_prediction(name: str, id: str, first: WaitingEntry, again: WaitingEntry) -> WaitingEntry:
    """The prediction that waits under this id already, if it is of the same input. Raises IdConflict."""
    if to_bytes(first.x) != to_bytes(again.x):
        raise id_conflict(name, id, "waits for the truth of another input")
    return first


def expired(name: str, id: str) -> PredictionExpired:
    return PredictionExpired(
        f"Prediction {id!r} waited too long for its truth; send the input `x` with its `y`, "
        "and create sessions whose truths are late with a larger `expires_s`.",
        session=name,
        id=id,
    )


def id_conflict(name: str, used: str, how: str) -> IdConflict:
    return IdConflict(f"Id {used!r} {how}; use a new id for each round.", session=name, id=used)
