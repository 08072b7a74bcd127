"""An entry of a Redis stream as a message to a session, with the ids that make it safe to retry."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from okl.errors import InvalidInput, MalformedBody, PayloadTooLarge, ServiceError

from ..api.problems import document_of, from_validation, not_json
from ..api.slices import opened_in
from ..api.values import Name

SESSION, MESSAGE = b"session", b"message"
"""The fields of an entry; others are ignored."""

MOST_MESSAGE_BYTES: Final = 1 << 20
"""The largest message that the service takes, unless OKL_MAX_ROW_BYTES is lower."""

NESTED: Final = 150
"""A message with at least this many arrays and objects is sent alone: the service refuses a whole frame with all its
messages if it is nested deeper than 200, or has more than 20,000 of them."""

_NAME: Final[TypeAdapter[str]] = TypeAdapter(Name)
_IN_AN_ID: Final = re.compile(r"[A-Za-z0-9_][\x21-\x7e]{0,79}")


@final
class Consumed:
    """A message in flight: `asks` has the ids of its predictions, `settles` the id of its truth."""

    __slots__ = ("asks", "data", "entry", "is_nested", "session", "settles", "size", "stream")

    def __init__(self, stream: str, entry: str, session: str, data: bytes) -> None:
        """`data` is empty for an invalid entry."""
        self.stream = stream
        self.entry = entry
        self.session = session
        self.data = data
        self.size = len(data)
        self.is_nested = opened_in(data) >= NESTED
        self.asks: tuple[str, ...] = ()
        self.settles: str | None = None


def read_entry(stream: str, entry: str, fields: Mapping[bytes, bytes] | None) -> Consumed:
    """The message of an entry; one without fields was deleted before it was read.

    A message without an id gets one derived from the entry, so that a redelivery is the same message. Raises InvalidInput,
    MalformedBody, PayloadTooLarge for a message that can never be sent.
    """
    if not fields:
        raise _deleted()
    missing = [name.decode() for name in (SESSION, MESSAGE) if name not in fields]
    if missing:
        raise InvalidInput(
            f"The entry has no field {' and no '.join(map(repr, missing))}.",
            errors=[{"pointer": f"/{name}", "detail": "is missing"} for name in missing],
        )
    try:
        session = _NAME.validate_python(fields[SESSION].decode("utf-8", "replace"))
    except ValidationError as error:
        raise from_validation([one | {"loc": ("session",)} for one in error.errors(include_url=False)]) from None
    data = fields[MESSAGE]
    if len(data) > MOST_MESSAGE_BYTES:
        raise PayloadTooLarge(f"The message has more than {MOST_MESSAGE_BYTES} bytes.", limit=MOST_MESSAGE_BYTES)
    try:
        message = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise not_json(str(error), "message") from None
    if not isinstance(message, dict):
        raise MalformedBody("The message is not an object of JSON.")
    found = Consumed(stream, entry, session, data)
    if _name(message, id_of_entry(stream, entry), found):
        found.data = to_json(message)
    return found


def id_of_entry(stream: str, entry: str) -> str:
    """`STREAM-MS-SEQ`; a digest replaces a stream's name that is too long, or has characters that an id must not have."""
    if not _IN_AN_ID.fullmatch(stream):
        stream = hashlib.blake2b(stream.encode(), digest_size=16).hexdigest()
    return f"{stream}-{entry}"


def _name(message: dict[str, Any], id: str, found: Consumed) -> bool:
    """Give an id to each part that changes anything and has none. Return whether the message changed; check nothing else."""
    if "update" in message or "predict" in message:
        update, predict = message.get("update"), message.get("predict")
        is_changed = False
        if isinstance(update, dict):
            is_changed = _name_update(update, f"{id}-u", found)
        if isinstance(predict, dict):
            is_changed |= _name_predict(predict, f"{id}-p", found)
        return is_changed
    return _name_update(message, id, found) if "y" in message else _name_predict(message, id, found)


def _name_update(update: dict[str, Any], id: str, found: Consumed) -> bool:
    # An update without id and input names no round; the service refuses it.
    is_changed = update.get("id") is None and update.get("x") is not None
    if is_changed:
        update["id"] = id
    named = update.get("id")
    if isinstance(named, str):
        found.settles = named
    return is_changed


def _name_predict(predict: dict[str, Any], id: str, found: Consumed) -> bool:
    is_changed = predict.get("id") is None and predict.get("wait", True) is True
    if is_changed:
        predict["id"] = id
    named = predict.get("id")
    if isinstance(named, str):
        found.asks = (named,)
    return is_changed


def refusal(error: ServiceError) -> bytes:
    """The answer to a message refused here: as from the service, without the name of a request."""
    document = document_of(error, "")
    del document["instance"]
    return to_json({"refused": document})


def _deleted() -> InvalidInput:
    return InvalidInput("The entry was deleted from the stream before it was answered.", errors=[])


DELETED: Final = refusal(_deleted())
"""The answer to an entry that was deleted after its delivery."""
