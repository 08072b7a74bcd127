"""A session's snapshot: named arrays and a JSON document. With the definition it is complete."""

from __future__ import annotations

import math
import struct
from json import dumps
from typing import Annotated, Any, Final

import numpy as np
from pydantic import FiniteFloat, NonNegativeInt, Strict, TypeAdapter, ValidationError

from okl.errors import StateCorrupt
from okl.values import Json
from okl_core import FrozenLearner, LearnerSpec, ReservoirLearner, parse_spec, restore
from okl_core.contract.frozen import FreezeRule
from okl_core.contract.state import from_bytes, part_of, prefixed, to_bytes
from okl_core.contract.wrong_fields import in_words
from okl_core.errors import OklError, StateFormatError
from okl_core.linalg.arithmetic import arithmetic
from okl_core.records.kept import arrays_of, fields_of, json_of, json_of_fields, preparation_of
from okl_core.records.warmup import Warmup
from okl_core.types import Stored

from .codec import decode_inputs, encode_inputs
from .coverage import Coverage
from .definition import Definition
from .history.history import History
from .maker import HostedLearner
from .pairing import Pairing
from .played import FrozenFrom
from .scorecard import Scorecard
from .session import Session
from .task import Task

PAIRING = "following"
"""The stored word for a challenger's pairing."""

_Label = Annotated[bool, Strict()] | Annotated[int, Strict()] | FiniteFloat | str
_LABELS: Final = TypeAdapter[tuple[_Label, ...]](tuple[_Label, ...])
_FROZEN: Final = TypeAdapter[tuple[str, NonNegativeInt, FreezeRule]](tuple[str, NonNegativeInt, FreezeRule])


def pack(session: Session, position: str) -> bytes:
    """Pack the session at a position, which names its identity and tip."""
    arrays: dict[str, Any] = prefixed("card", session.card.pack())
    if session.learner is not None:
        arrays |= prefixed("learner", session.learner.state())
    if session.warmup is not None:
        arrays |= prefixed("warm", _warm(session.warmup))
    arrays |= prefixed("history", session.history.pack())
    if session.coverage is not None:
        arrays |= prefixed("coverage", session.coverage.pack())
    pairing = None
    if session.pairing is not None:
        duel, pairing = session.pairing.pack()
        arrays |= prefixed(PAIRING, duel)
    preparation, frozen, spec = session.preparation, session.frozen, session.spec
    if preparation is not None:
        arrays |= arrays_of(preparation)
    meta = {
        "position": position,
        "arithmetic": arithmetic(),
        "task": _task(session.task),
        "spec": None if spec is None else spec.model_dump(mode="json"),
        "fields": None if session.fields is None else json_of_fields(session.fields),
        "prepared": None if preparation is None else json_of(preparation),
        "frozen": None if frozen is None else [frozen.session, frozen.t, frozen.rule],
    }
    if pairing is not None:
        meta[PAIRING] = pairing
    return to_bytes(arrays, meta)


def begun(definition: Definition) -> Session:
    """The session of a stored definition before its first round. Raises StateCorrupt if its learner is unknown here."""
    try:
        return Session(definition)
    except OklError as error:
        name = definition.name
        raise StateCorrupt(f"Session {name!r} cannot be read by this version: {error}.", session=name) from error


def unpack(definition: Definition, blob: bytes | None, position: str, most_bytes: float = math.inf) -> Session:
    """Restore the session that `pack` was given; without a snapshot, the session before its first round.

    Raises StateCorrupt, also for a snapshot of another position, or a learner that takes more than `most_bytes` initially.
    """
    session = begun(definition)
    if blob is None:
        return session
    try:
        arrays, meta = from_bytes(blob)
        # Raises ValueError for an unpaired surrogate, which no answer could tell.
        dumps(meta, ensure_ascii=False).encode()
        if meta["position"] != position:
            raise StateFormatError(f"it is of position {meta['position']}, not {position}")
        session.card = Scorecard.unpack(part_of(arrays, "card"))
        session.history = History.unpack(definition.alarm, part_of(arrays, "history"))
        if meta["task"] is not None:
            session.task = _task_of(session, meta["task"])
        if meta["spec"] is not None:
            session.spec = LearnerSpec.model_validate(meta["spec"])
            # The learner may not be made yet.
            parse_spec(session.spec)
        session.fields = None if meta["fields"] is None else fields_of(meta["fields"])
        if meta["prepared"] is not None:
            session.preparation = preparation_of(meta["prepared"], arrays)
            if session.fields is not None and session.preparation.fields != session.fields:
                raise StateFormatError("its fields differ from those that its inputs are prepared with")
        if meta["frozen"] is not None:
            session.frozen = FrozenFrom(*_FROZEN.validate_python(meta["frozen"]))
        if session.task is not None and session.spec is not None and session.spec.kind != session.task.spec.kind:
            raise StateFormatError(f"it is of a learner {session.spec.kind!r}, not {session.task.spec.kind!r}")
        if session.task is not None and (session.t > 0 or session.frozen is not None):
            session.learner = _restored(session, session.task, part_of(arrays, "learner"), most_bytes)
        if definition.interval is not None:
            session.coverage = Coverage.unpack(definition.interval, part_of(arrays, "coverage"))
        if session.pairing is not None and PAIRING in meta:
            session.pairing = Pairing.unpack(part_of(arrays, PAIRING), meta[PAIRING])
        session.warmup = _warmup_of(definition, part_of(arrays, "warm"))
    except (OklError, LookupError, ArithmeticError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise StateCorrupt(f"The snapshot of {definition.name!r} cannot be read: {_told(error)}") from error
    return session


def _told(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))} {in_words(first)}"


def _task(task: Task | None) -> Json | None:
    """What the first truths decided about the task; empty if the definition did."""
    if task is None:
        return None
    return {"labels": task.truths.names} if task.is_open else {}


def _task_of(session: Session, json: Json) -> Task:
    task = session.task or Task.of_truths(session.definition, () if "labels" in json else None)
    labels = _LABELS.validate_python(json.get("labels", ()))
    if labels and not task.is_open:
        raise StateFormatError("it has labels of its own, and its definition decides which there are")
    for label in labels:
        _, task = task.read_truth(label)
    if len(task.truths.names) < len(labels):
        raise StateFormatError("it has a label twice")
    return task


def _warm(warmup: Warmup) -> dict[str, Any]:
    lags = [row for row in warmup.lags if row is not None]
    return {
        "raws": np.frombuffer(encode_inputs(warmup.raws), dtype=np.uint8),
        "truths": np.array([warmup.truths, warmup.weights], dtype=np.float64),
        "lags": np.array(lags, dtype=np.float64),
    }


def _warmup_of(definition: Definition, arrays: dict[str, Any]) -> Warmup | None:
    if not arrays:
        return None
    warmup, (truths, weights), lags = Warmup(definition.warmup_rounds), arrays["truths"], arrays["lags"]
    raws = decode_inputs(arrays["raws"].tobytes(), 0, len(truths))
    for i, (raw, y, weight) in enumerate(zip(raws, truths.tolist(), weights.tolist(), strict=True)):
        warmup.add(raw, np.array(lags[i]) if len(lags) else None, y, weight)
    return warmup


def _restored(session: Session, task: Task, arrays: dict[str, Stored], most_bytes: float) -> HostedLearner:
    if session.preparation is None:
        return restore(task.stand_in, arrays, 1)
    spec, width = session.spec or task.spec, session.preparation.width
    if most_bytes < math.inf:
        _, algorithm, config = parse_spec(spec)
        if (least := algorithm.initial_bytes(config, width + spec.lags)) > most_bytes:
            raise StateFormatError(
                f"its learner takes {least} bytes from the start, the cap is {most_bytes} (OKL_SESSION_BYTES)"
            )
    if session.definition.reservoir:
        return ReservoirLearner.restore(spec, arrays, width)
    learner = restore(spec, arrays, width)
    return learner if session.frozen is None else FrozenLearner(learner, session.frozen.rule)
