"""The stored form of a session's definition: a versioned document of its own, separate from wire and domain.

A reader ignores unknown fields, so a newer build may add a field that older ones can do without. A field that an older build
must not ignore raises VERSION; the older build then refuses that one session only.
"""

from __future__ import annotations

import zlib
from dataclasses import asdict
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from okl.errors import StateCorrupt
from okl_core import LearnerSpec
from okl_core.records.fields import FieldKind
from okl_core.records.survey import Declared

from .definition import AlarmRules, Definition, Ranges

VERSION = 1
_CRC_BYTES = 4


class _Stored(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _StoredField(_Stored):
    name: str
    kind: FieldKind
    categories: tuple[str, ...] | None = None


class _StoredRanges(_Stored):
    low: tuple[float, ...]
    high: tuple[float, ...]


class _StoredAlarm(_Stored):
    rate: float | None = 0.01
    error_above: float | None = None


class _Versioned(_Stored):
    version: int = Field(ge=1)


class SessionRecord(_Stored):
    """A definition in the store. Its defaults never change, since values equal to them are not written."""

    version: int
    identity: str
    name: str
    learner: LearnerSpec | None = None
    dim: int | None = None
    fields: tuple[_StoredField, ...] | None = None
    hashed: int | None = None
    is_strict: bool = False
    labels: tuple[bool | int | float | str, ...] | None = None
    y_range: tuple[float, float] | None = None
    scale: Literal["none", "learned"] | _StoredRanges = "learned"
    warmup_rounds: int = 500
    interval: float | None = None
    snapshot_every: int | None = None
    expires_s: float | None = None
    reservoir: bool = False
    alarm: _StoredAlarm = _StoredAlarm()
    template: str | None = None


def encode_record(definition: Definition, identity: bytes) -> bytes:
    """Encode the definition and the session's identity for the store, with a checksum."""
    schema, scale = definition.schema, definition.scale
    record = SessionRecord(
        version=VERSION,
        identity=identity.hex(),
        name=definition.name,
        learner=definition.learner,
        dim=definition.dim,
        fields=None if schema is None else tuple(_StoredField(name=name, **asdict(one)) for name, one in schema),
        hashed=definition.hashed,
        is_strict=definition.is_strict,
        labels=definition.labels,
        y_range=definition.y_range,
        scale=_StoredRanges(low=scale.low, high=scale.high) if isinstance(scale, Ranges) else scale,
        warmup_rounds=definition.warmup_rounds,
        interval=definition.interval,
        snapshot_every=definition.snapshot_every,
        expires_s=definition.expires_s,
        reservoir=definition.reservoir,
        alarm=_StoredAlarm(**definition.alarm._asdict()),
        template=definition.template,
    )
    body = record.model_dump_json(exclude_defaults=True).encode()
    return body + zlib.crc32(body).to_bytes(_CRC_BYTES, "little")


def decode_record(name: str, blob: bytes) -> tuple[Definition, bytes]:
    """Decode a record into the definition and the identity.

    Raises StateCorrupt for a record that is damaged, of another session, or of a newer version.
    """
    definition, identity = decode_any_record(blob, f"session {name!r}", session=name)
    if definition.name != name:
        raise StateCorrupt(f"The record of session {name!r} is that of {definition.name!r}.", session=name)
    return definition, identity


def decode_any_record(blob: bytes, of: str = "a session", **extra: str) -> tuple[Definition, bytes]:
    """Decode the record of a session of any name; `of` and `extra` go into the error."""
    body, crc = blob[:-_CRC_BYTES], blob[-_CRC_BYTES:]
    if zlib.crc32(body).to_bytes(_CRC_BYTES, "little") != crc:
        raise StateCorrupt(f"The record of {of} was damaged: its checksum does not match.", **extra)
    try:
        # The version may be all that this build can read of a newer record.
        version = _Versioned.model_validate_json(body).version
        if version > VERSION:
            raise StateCorrupt(
                f"{of[0].upper()}{of[1:]} was made by a newer version (record {version}, this one reads {VERSION}); "
                "upgrade the service.",
                **extra,
            )
        record = SessionRecord.model_validate_json(body)
        identity = bytes.fromhex(record.identity)
    except ValueError as error:
        raise StateCorrupt(f"The record of {of} cannot be read by this version.", **extra) from error
    return _definition(record), identity


def _definition(record: SessionRecord) -> Definition:
    scale, fields = record.scale, record.fields
    return Definition(
        name=record.name,
        learner=record.learner,
        dim=record.dim,
        schema=None if fields is None else tuple((one.name, Declared(one.kind, one.categories)) for one in fields),
        hashed=record.hashed,
        is_strict=record.is_strict,
        labels=record.labels,
        y_range=record.y_range,
        scale=Ranges(scale.low, scale.high) if isinstance(scale, _StoredRanges) else scale,
        warmup_rounds=record.warmup_rounds,
        interval=record.interval,
        snapshot_every=record.snapshot_every,
        expires_s=record.expires_s,
        reservoir=record.reservoir,
        alarm=AlarmRules(record.alarm.rate, record.alarm.error_above),
        template=record.template,
    )
