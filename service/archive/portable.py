"""A session's definition and state as self-contained bytes, for downloads, uploads, clones and checkpoints.

    head     "okl-state", u16 version
    record   u32 length, the definition as the store keeps it
    state    a snapshot without a position
    digest   16 bytes of BLAKE2b over everything before it

The digest detects damage. It is no signature: forged bytes reach the parsers, so what they decode to is bounded by their
size, and every error becomes InvalidSnapshot.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from okl.errors import InvalidSnapshot, ServiceError

from ..session.definition import Definition
from ..session.history.view import view_of
from ..session.limits import SessionLimits
from ..session.record import decode_any_record, encode_record
from ..session.session import Session
from ..session.snapshot import pack, unpack
from ..session.summary import encode_summary, summary_of

VERSION = 1
MAGIC = b"okl-state"
_HEAD = struct.Struct("<9sHI")
_DIGEST_BYTES = 16
_POSITION = "portable"
_NO_IDENTITY = bytes(16)
MOST_TOLD = 300
"""The longest error message, in characters."""


def pack_state(session: Session) -> bytes:
    """The session's definition and state."""
    record = encode_record(session.definition, _NO_IDENTITY)
    body = _HEAD.pack(MAGIC, VERSION, len(record)) + record + pack(session, _POSITION)
    return body + _digest(body)


def unpack_state(name: str, blob: bytes, limits: SessionLimits) -> Session:
    """The session that `pack_state` packed, under this name and without a template. Raises InvalidSnapshot."""
    with usable("The snapshot"):
        session = state_in(name, blob, limits)
        if session.nbytes > limits.bytes:
            detail = (
                f"The snapshot's learner takes {session.nbytes} bytes, the cap is {limits.bytes} (OKL_SESSION_BYTES)."
            )
            raise InvalidSnapshot(detail)
    return session


def state_in(name: str, blob: bytes, limits: SessionLimits) -> Session:
    """As `unpack_state`, for a learner that may have grown to any size. May raise anything."""
    definition, state = _parts(blob)
    return tried(replace(definition, name=name, template=None), state, _POSITION, limits)


def tried(definition: Definition, state: bytes, position: str, limits: SessionLimits) -> Session:
    """The session of a snapshot that may be forged. May raise anything that would otherwise surface in a round."""
    session = unpack(definition, state, position, limits.bytes)
    if session.dim is not None and session.dim > limits.dim:
        detail = f"The snapshot has {session.dim} inputs; this service takes at most {limits.dim} (OKL_MAX_DIM)."
        raise InvalidSnapshot(detail)
    twin = session.copy()
    twin.describe()
    encode_summary(summary_of(twin))
    if twin.history.rounds:
        view_of(twin.history)
    if session.learner is not None and session.task is not None:
        width = 1 if session.preparation is None else session.preparation.width
        forecast = session.learner.copy().predict(np.zeros(width))
        if not np.isfinite(forecast.value):
            raise InvalidSnapshot("The snapshot's learner does not predict a finite number.")
        if len(forecast.probabilities or ()) > len(session.task.truths.names):
            raise InvalidSnapshot("The snapshot's learner predicts more classes than the session has labels.")
    return session


@contextmanager
def usable(what: str) -> Iterator[None]:
    """Turn every error of bytes that may be forged into InvalidSnapshot."""
    try:
        yield
    except InvalidSnapshot:
        raise
    except ServiceError as error:
        raise InvalidSnapshot(f"{what} cannot be used: {error.detail}"[:MOST_TOLD]) from error
    # A digest is no signature: forged arrays reach the learners, which may raise anything.
    except Exception as error:
        raise InvalidSnapshot(f"{what} cannot be used: {type(error).__name__}: {error}"[:MOST_TOLD]) from error


def definition_in(blob: bytes) -> Definition:
    """The definition of a state. Raises InvalidSnapshot."""
    with usable("The snapshot"):
        return _parts(blob)[0]


def _parts(blob: bytes) -> tuple[Definition, bytes]:
    if not blob.startswith(MAGIC) or len(blob) < _HEAD.size + _DIGEST_BYTES:
        raise InvalidSnapshot("This is not a snapshot of a session, or it is truncated.")
    _, version, length = _HEAD.unpack_from(blob)
    if version != VERSION:
        raise InvalidSnapshot(f"The snapshot has version {version}; this service reads version {VERSION}.")
    body, digest = blob[:-_DIGEST_BYTES], blob[-_DIGEST_BYTES:]
    if digest != _digest(body):
        raise InvalidSnapshot("The snapshot was damaged or truncated: its digest does not match.")
    end = _HEAD.size + length
    return decode_any_record(body[_HEAD.size : end])[0], body[end:]


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


def clash(now: Session, then: Session, *, with_labels: bool = True) -> str | None:
    """Why predictions of `now` cannot be settled in `then`; None if they can. Without `with_labels` it is enough that the
    labels are the same, whether they were declared or found."""
    if then.frozen is not None:
        return "it is frozen and learns nothing"
    one, other = now.definition, then.definition
    declared = ("labels",) if with_labels else ()
    for field in ("dim", "schema", "hashed", "is_strict", *declared, "y_range"):
        if getattr(one, field) != getattr(other, field):
            return f"it has another `{field.removeprefix('is_')}`"
    if now.task is None:
        return None  # nothing was forecast yet
    if then.task is None:
        return "no truth has told yet what it learns"
    if _kind(now) != _kind(then):
        return "its truths are of another kind"
    names, others = now.task.truths.names, then.task.truths.names
    # A forecast names a label by its index, which would go to the next new label if this one is not known yet.
    if others[: len(names)] != names:
        return "its labels are others" if others != names[: len(others)] else "it has not seen all labels yet"
    if now.task.spec.lags != then.task.spec.lags:
        return "its learner has another number of lags"
    return None


def _kind(session: Session) -> tuple[bool, bool]:
    assert session.task is not None
    return session.task.truths.is_classifier, session.task.truths.has_classes
