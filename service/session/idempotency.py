"""Idempotency: what is remembered under an id, and whether a second request with it is a duplicate of the first."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic_core import from_json, to_json

from okl.errors import IdConflict, PredictionExpired, StateCorrupt
from okl_core.records.record import Raws, to_bytes
from okl_core.types import F64

from ..store.base import Applied
from .codec import WaitingEntry, decode_answer, encode_answer, plain_inputs
from .definition import Scalar
from .requests import Batch, BodyBlock, Columns, Report, RoundsPlayed, Updated, body_id_of

REMEMBERED_BYTES = 4096
"""Answers larger than this are remembered without the forecasts of their rounds."""

_NOT_KEPT = ("session", "id", "is_duplicate", "columns")


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def digest_of_inputs(raws: Raws) -> str:
    return digest(plain_inputs(raws))


def _truths(truths: Sequence[Scalar] | F64) -> Scalar | str:
    """The truth in the client's terms, 1 and 1.0 being equal; a digest of several truths, or of truths and weights."""
    if isinstance(truths, np.ndarray):
        plain: list[Scalar] = truths.tolist()
    else:
        plain = [float(y) if isinstance(y, int) and not isinstance(y, bool) else y for y in truths]
    return plain[0] if len(plain) == 1 else digest(to_json(plain))


def remember(identity: bytes, id: str, result: Updated | RoundsPlayed, raws: Raws, sent: Report | Batch) -> bytes:
    """Encode the answer to a round or a block: enough to repeat it, and to recognise the request."""
    known = {name: value for name, value in result._asdict().items() if value is not None and name not in _NOT_KEPT}
    request = {"x": digest_of_inputs(raws), "y": _truths(sent.truths)}
    short = to_json(known | request)
    # A forecast takes a byte at least.
    if isinstance(result, RoundsPlayed) and result.rounds <= REMEMBERED_BYTES:
        document = to_json(known | result.columns.as_lists() | request)
        short = document if len(document) <= REMEMBERED_BYTES else short
    return encode_answer(identity, id, short)


def repeated_result(
    name: str,
    identity: bytes,
    applied: Applied,
    raws: Raws | None,
    sent: Report | Batch,
    known: Mapping[str, object],
) -> Updated | RoundsPlayed:
    """Return the first answer to a duplicate request, whose inputs are `raws`. Raises IdConflict if it is another one."""
    if is_progress(identity, applied):
        raise id_conflict(name, applied.id, "was used for another kind of request")
    result, first_x, first_y = first_result(name, identity, applied)
    if isinstance(result, RoundsPlayed) != isinstance(sent, Batch):
        raise id_conflict(name, applied.id, "was used for another kind of request")
    block = sent.body_block if isinstance(sent, Batch) else None
    if isinstance(result, RoundsPlayed) and isinstance(sent, Batch) and block is not None:
        # The last block of a body is longer when the body has grown.
        raws, sent = None if raws is None else raws[: result.rounds], sent.first(result.rounds)
    is_same_input = raws is None or digest_of_inputs(raws) == first_x
    if is_same_input and first_y == _truths(sent.truths):
        return result
    if block is not None:
        raise _other_lines(name, identity, block, known)
    how = "was settled with another truth" if is_same_input else "was used for another input"
    raise id_conflict(name, applied.id, how)


def first_result(name: str, identity: bytes, applied: Applied) -> tuple[Updated | RoundsPlayed, object, object]:
    """Return the remembered answer, and the input and truths of its request. Raises StateCorrupt."""
    try:
        first: dict[str, Any] = from_json(decode_answer(identity, applied.id, applied.answer))
        x, y = first.pop("x"), first.pop("y")
        kind = RoundsPlayed if "rounds" in first else Updated
        if kind is RoundsPlayed:
            first["columns"] = Columns(**{name: first.pop(name) for name in Columns._fields if name in first})
        return kind(session=name, id=applied.id, is_duplicate=True, **first), x, y
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateCorrupt(f"The answer remembered under id {applied.id!r} cannot be read.", session=name) from error


def progress_of(identity: bytes, batch: Batch) -> Applied | None:
    """The progress of a body once this block is learned, remembered longer than the answers to its first blocks."""
    block = batch.body_block
    if block is None:
        return None
    document = to_json({"blocks": block.blocks + 1, "rounds": block.rounds + len(batch.y)})
    return Applied(block.body_id, encode_answer(identity, block.body_id, document))


def is_progress(identity: bytes, applied: Applied) -> bool:
    """Whether the progress of a body is remembered here, and not an answer. Raises StateCorrupt."""
    return decode_answer(identity, applied.id, applied.answer).startswith(b'{"blocks":')


def check_key(name: str, identity: bytes, batch: Batch, known: Mapping[str, object]) -> None:
    """Raises IdConflict for a block whose answer is forgotten, though the progress of its body counts it as learned; for one
    after lines that the store has lost; and for a key that was used for lines before and is not now, or the reverse, even
    if it is a prediction's that still waits."""
    block = batch.body_block
    if block is None:
        of_lines = None if batch.id is None else known.get(body_id_of(batch.id))
        if isinstance(of_lines, Applied) and is_progress(identity, of_lines):
            raise id_conflict(name, batch.id or "", "was used for rounds as lines")
        return
    of_key = known.get(block.key)
    if isinstance(of_key, Applied):
        raise id_conflict(name, block.key, "was used for another kind of request")
    if of_key is not None and not block.blocks:
        # Once its truth is reported, the lines could not be continued.
        raise id_conflict(name, block.key, "waits for the truth of a prediction")
    progress = known.get(block.body_id)
    if progress is None:
        # `okl repair` takes the progress of rounds back, and keeps the answers to the rounds before them.
        if block.previous_id is not None and not isinstance(known.get(block.previous_id), Applied):
            raise _lost_lines(name, block, 0)
        return
    if not isinstance(progress, Applied):
        raise id_conflict(name, block.body_id, "waits for the truth of a prediction")
    if not is_progress(identity, progress):
        raise id_conflict(name, progress.id, "was used for another kind of request")
    blocks, applied = _blocks_and_rounds(identity, progress)
    if blocks < block.blocks:
        raise _lost_lines(name, block, applied)
    if blocks > block.blocks:
        detail = (
            f"The first {applied} lines under key {block.key!r} were learned, but the answers to the oldest are no longer "
            "remembered; send the lines after them under another key."
        )
        raise IdConflict(detail, session=name, id=block.key, applied=applied)


def _lost_lines(name: str, block: BodyBlock, applied: int) -> IdConflict:
    """The error for a block after lines that were learned, and that the store has lost since."""
    detail = (
        f"The store has lost lines under key {block.key!r} that were learned: {applied} of the {block.rounds} before these "
        "are left. Send the whole body again under the same key."
    )
    return IdConflict(detail, session=name, id=block.key, applied=applied)


def _other_lines(name: str, identity: bytes, block: BodyBlock, known: Mapping[str, object]) -> IdConflict:
    """The error for a block of a body that was learned with other lines."""
    progress = known.get(block.body_id)
    applied = _blocks_and_rounds(identity, progress)[1] if isinstance(progress, Applied) else block.rounds
    detail = (
        f"Block {block.blocks + 1} under key {block.key!r} was learned with other lines; {applied} lines were. Send the same "
        "lines, with the same `block`, or only those after them under another key."
    )
    return IdConflict(detail, session=name, id=block.key, applied=applied)


def _blocks_and_rounds(identity: bytes, progress: Applied) -> tuple[int, int]:
    so_far: dict[str, int] = from_json(decode_answer(identity, progress.id, progress.answer))
    return so_far["blocks"], so_far["rounds"]


def same_prediction(name: str, id: str, first: WaitingEntry, again: WaitingEntry) -> WaitingEntry:
    """Return the prediction that already waits under this id, if its input is the same. Raises IdConflict."""
    if to_bytes(first.x) != to_bytes(again.x):
        raise id_conflict(name, id, "waits for the truth of another input")
    return first


def expired(name: str, id: str) -> PredictionExpired:
    return PredictionExpired(
        f"Prediction {id!r} waits no more: it was cancelled, or its truth took too long; send the input `x` with its `y`, "
        "and create sessions whose truths are late with a larger `expires_s`.",
        session=name,
        id=id,
    )


def id_conflict(name: str, used: str, how: str) -> IdConflict:
    return IdConflict(f"Id {used!r} {how}; use a new id for each round.", session=name, id=used)
