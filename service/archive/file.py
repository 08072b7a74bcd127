"""Sessions in a file: a sequence of frames, each with a digest of everything before it.

    file    "okl-archive 1\\n", frames
    frame   4 bytes kind, u32 length of the document, u64 length of the blobs, the document (JSON), the blobs, 16 bytes digest
    kinds   SESS begins a session, PAGE and KEPT are its parts, DONE ends it

A document lists the sizes of its blobs in order. The digest is BLAKE2b over the frame, keyed by the digest before it, so that
damaged, missing and misplaced frames are detected. A truncated file is valid up to its last DONE.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, final

from pydantic_core import from_json, to_json

from okl.errors import DamagedArchive

from ..store.base import DIGEST_BYTES, Entry, Head, Tip
from ..store.moving import Checkpoint, HeldItem, Luggage, RememberedItem, Whole
from .parts import Kept, Load, Part

MAGIC = b"okl-archive 1\n"
MOST_BYTES = 1 << 30
"""The largest frame. A value in Redis has at most 512 MiB, in SQLite a billion bytes."""
MOST_DOCUMENT_BYTES = 8 << 20
"""The largest JSON document: ten times that of a full page. Parsing takes many times as much memory."""
_FRAME = struct.Struct("<4sIQ")
_TIMES = ("created_at", "updated_at", "snapshot_at")
_COUNTS = (
    "snapshot_bytes",
    "journal_rounds",
    "journal_bytes",
    "tail_bytes",
    "never_came",
    "summary_round",
    "told",
)
_NUMBERS = _TIMES + _COUNTS
_MOST_COUNT = 1 << 53
_MOST_S = _MOST_COUNT / 1e6
"""The latest time that a store keeps exactly, as microseconds in a float."""
_DAMAGE = (ValueError, KeyError, TypeError, IndexError, struct.error, UnicodeDecodeError, OverflowError)


class Framed(NamedTuple):
    """A frame without its sizes and its digest."""

    kind: bytes
    document: dict[str, Any]
    blobs: Sequence[bytes]


class FilePosition(NamedTuple):
    """A position in a file; `digest` covers everything before it."""

    byte: int
    digest: bytes


def framed(part: Part) -> Framed:
    match part:
        case Whole():
            head = part.head
            tips = {"first": part.first, "base": part.base, "tip": head.tip, "snapshot_tip": head.snapshot_tip}
            document: dict[str, Any] = {"name": head.name} | {name: getattr(head, name) for name in _NUMBERS}
            document |= {name: None if tip is None else _tip_fields(tip) for name, tip in tips.items()}
            snapshot = [] if part.snapshot is None else [part.snapshot]
            return Framed(b"SESS", document, [part.record, head.summary, *snapshot])
        case Load(entries, luggage):
            document = {
                "entries": [[*_tip_fields(one.tip), one.count, one.id] for one in entries],
                "held": [[one.id, one.expires_at, one.forget_at, one.is_expired] for one in luggage.held],
                "remembered": [[one.id, one.at] for one in luggage.remembered],
            }
            blobs = [one.blob for one in (*entries, *luggage.held)] + [one.answer for one in luggage.remembered]
            return Framed(b"PAGE", document, blobs)
        case Kept(checkpoint, state):
            return Framed(
                b"KEPT", {"name": checkpoint.name, "tip": _tip_fields(checkpoint.tip), "at": checkpoint.at}, [state]
            )


def part_of(frame: Framed) -> Part:
    """Raises one of _DAMAGE."""
    document, blobs = frame.document, list(frame.blobs)
    if frame.kind == b"SESS":
        bounds = dict.fromkeys(_TIMES, _MOST_S) | dict.fromkeys(_COUNTS, _MOST_COUNT)
        numbers: dict[str, Any] = {
            name: None if document[name] is None else _number(document[name], most) for name, most in bounds.items()
        }
        snapshot_tip = None if document["snapshot_tip"] is None else _tip(document["snapshot_tip"])
        record, summary, *snapshot = blobs
        if bool(snapshot) != (snapshot_tip is not None):
            raise ValueError("the snapshot is missing")
        head = Head(str(document["name"]), summary, _tip(document["tip"]), snapshot_tip=snapshot_tip, **numbers)
        return Whole(
            head, _tip(document["first"]), _tip(document["base"]), record, snapshot[0] if snapshot else None, []
        )
    if frame.kind == b"KEPT":
        [state] = blobs
        return Kept(Checkpoint(str(document["name"]), _tip(document["tip"]), _time(document["at"]), len(state)), state)
    rest = iter(blobs)
    entries = [
        Entry(_tip([round, digest]), _count(count), str(id), next(rest))
        for round, digest, count, id in document["entries"]
    ]
    held = [
        HeldItem(str(id), next(rest), _time(due), _time(gone), bool(is_expired))
        for id, due, gone, is_expired in document["held"]
    ]
    remembered = [RememberedItem(str(id), next(rest), _time(at)) for id, at in document["remembered"]]
    return Load(entries, Luggage(held, remembered))


def _tip_fields(tip: Tip) -> list[Any]:
    return [tip.round, tip.digest.hex()]


def _tip(value: Any) -> Tip:
    round, digest = value
    tip = Tip(_count(round), bytes.fromhex(digest))
    if len(tip.digest) != DIGEST_BYTES:
        raise ValueError("a tip is malformed")
    return tip


def _number(value: Any, most: float) -> Any:
    """A number of a store; NaN fails the comparison, too."""
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise ValueError("a number is out of range")
    return value


def _time(value: Any) -> float:
    return float(_number(value, _MOST_S))


def _count(value: Any) -> int:
    return int(_number(value, _MOST_COUNT))


@final
class ArchiveReader:
    """Reads and checks the frames of a file. Raises DamagedArchive."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._size = os.fstat(file.fileno()).st_size
        if (magic := file.read(len(MAGIC))) != MAGIC:
            other = re.match(rb"okl-archive (\d+)", magic)
            what = f"has version {int(other[1])}; this program reads version 1" if other else "is not an okl archive"
            raise DamagedArchive(f"{name} {what}.")
        self.digest = _first_digest()
        self.good_bytes = len(MAGIC)
        """The bytes up to the end of the last complete session."""

    def frames(self) -> Iterator[Framed]:
        """Yield the frames up to the end of the file, which must be the end of a session."""
        while head := self._file.read(_FRAME.size):
            try:
                if len(head) < _FRAME.size:
                    raise ValueError("the file ends in the middle")
                kind, length, size = _FRAME.unpack(head)
                if length + size > MOST_BYTES or length > MOST_DOCUMENT_BYTES:
                    raise ValueError("a part of it is larger than any store keeps")
                if length + size + DIGEST_BYTES > self._size - self._file.tell():
                    raise ValueError("the file ends in the middle")
                document, blobs = self._file.read(length), self._file.read(size)
                digest = _digest(self.digest, head, document, blobs)
                if self._file.read(DIGEST_BYTES) != digest:
                    raise ValueError("a digest does not match")
                fields = from_json(document)
                frame = Framed(kind, fields, list(_cut(blobs, fields.pop("sizes"))))
            except (*_DAMAGE, AttributeError) as error:
                raise self._damaged(error) from error
            self.digest = digest
            if kind == b"DONE":
                self.good_bytes = self._file.tell()
            yield frame

    @property
    def position(self) -> FilePosition:
        """The position after the last frame read."""
        return FilePosition(self._file.tell(), self.digest)

    def go_back(self, position: FilePosition) -> None:
        """Seek to a position, to read the frames after it again."""
        self._file.seek(position.byte)
        self.digest = position.digest

    def part(self, frame: Framed) -> Part:
        try:
            return part_of(frame)
        except (*_DAMAGE, StopIteration) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> DamagedArchive:
        detail = str(error) if isinstance(error, ValueError) else repr(error)
        where = f"{self._name} is damaged after {self.good_bytes} bytes"
        return DamagedArchive(f"{where}: {detail}. Take another copy of it, or export again.")


@final
class ArchiveWriter:
    """Appends to an empty file, or to one that ends with a complete session and its `digest`."""

    def __init__(self, file: BinaryIO, digest: bytes | None = None) -> None:
        self._file = file
        self._digest = digest or _first_digest()
        if digest is None:
            file.write(MAGIC)
        self._whole = FilePosition(file.tell(), self._digest)

    def add(self, part: Part) -> None:
        self.write(framed(part))

    def done(self, name: str) -> None:
        """End the session, and flush it to the disk."""
        self.write(Framed(b"DONE", {"name": name}, []))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._whole = FilePosition(self._file.tell(), self._digest)

    def drop(self) -> None:
        """Remove what was written of a session that did not end."""
        self._file.seek(self._whole.byte)
        self._file.truncate()
        self._digest = self._whole.digest

    def write(self, frame: Framed) -> None:
        """Write one frame with its digest."""
        blobs = b"".join(frame.blobs)
        document = to_json(frame.document | {"sizes": [len(blob) for blob in frame.blobs]})
        head = _FRAME.pack(frame.kind, len(document), len(blobs))
        self._digest = _digest(self._digest, head, document, blobs)
        self._file.write(head + document)
        self._file.write(blobs)
        self._file.write(self._digest)


def sessions_in(path: Path) -> tuple[dict[str, Tip], int, bytes]:
    """The complete sessions in a file with their tips, the offset at which the last one ends, and the digest there."""
    found: dict[str, Tip] = {}
    with path.open("rb") as file:
        reader = ArchiveReader(file, str(path))
        digest, begun = reader.digest, None
        try:
            for frame in reader.frames():
                if frame.kind == b"SESS":
                    begun = reader.part(frame)
                elif frame.kind == b"DONE" and isinstance(begun, Whole):
                    found[begun.head.name], digest = begun.head.tip, reader.digest
        except DamagedArchive:
            pass
        return found, reader.good_bytes, digest


def _first_digest() -> bytes:
    return hashlib.blake2b(MAGIC, digest_size=DIGEST_BYTES).digest()


def _digest(before: bytes, *parts: bytes) -> bytes:
    found = hashlib.blake2b(digest_size=DIGEST_BYTES, key=before)
    for part in parts:
        found.update(part)
    return found.digest()


def _cut(blobs: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    if any(type(size) is not int or size < 0 for size in sizes) or sum(sizes) != len(blobs):
        raise ValueError("the sizes of its blobs do not match")
    start = 0
    for size in sizes:
        yield blobs[start : start + size]
        start += size
