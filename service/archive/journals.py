"""A session's journal in files: all its rounds, as far as they were archived before the store trimmed them.

A folder has the file `session`, which names the session, and the journal as 000001.journal, 000002.journal, ... Each of
those is a head and a chain of entries:

    head     "okl-jrnl", u16 version, u64 round and 16 bytes digest of the tip that the first entry follows
    entry    u32 count, u32 length of the id, u32 length of the bytes, the id, the bytes, 16 bytes digest

The digests are those of the journal's chain, so that changed, lost and moved entries are detected. An entry that a crash has
truncated at the end of the last file is written again. A file that does not continue the one before it means that rounds are
missing between them, or that the session was rolled back to another state.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from okl.errors import ConfigurationError, DamagedArchive

from ..store.base import DIGEST_BYTES, Entry, Store, Tip, unless_gone

VERSION: Final = 1
MAGIC: Final = b"okl-jrnl"
OWNER: Final = "session"
"""The file that names the session."""
FILE_BYTES: Final = 64 << 20
"""A file that has grown beyond this size is followed by another."""

_HEAD = struct.Struct(f"<8sHQ{DIGEST_BYTES}s")
_ENTRY = struct.Struct("<III")


class Archived(NamedTuple):
    """The tip at which the files end now, the rounds added, and the number missing before them. That is None, unknown, if the
    session went on from another state, whose round is not after the files' last."""

    tip: Tip
    rounds: int
    missing: int | None


async def archive(store: Store, name: str, folder: Path) -> Archived:
    """Add the session's new rounds to the folder. Raises SessionNotFound, DamagedArchive, ConfigurationError."""
    unless_gone(await store.head(name), name)
    try:
        with _alone(folder):
            check_owner(folder, name)
            if not _owner(folder):
                (folder / OWNER).write_text(name + "\n")
            last = _last(folder)
            tip = None if last is None else last.tip
            reading = None if tip is None else unless_gone(await store.read(name, tip), name)
            if reading is None or reading.is_whole:
                # Read the tail behind the snapshot, too.
                whole = unless_gone(await store.whole(name), name)
                base, entries = whole.base, whole.entries
            else:
                base, entries = reading.start, reading.entries
            return Archived(*_write(folder, last, base, entries), _missing(tip, base))
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error.strerror}.") from error


def read_archive(folder: Path) -> tuple[Tip, list[Entry]]:
    """The newest unbroken chain of entries, and the tip before it. Raises DamagedArchive."""
    base: Tip | None = None
    entries: list[Entry] = []
    files = _files(folder)
    if files and not _has_head(files[-1]):
        files.pop()
    for path in files:
        start, found, _ = _read(path)
        if base is None or start != (entries[-1].tip if entries else base):
            base, entries = start, []
        entries += found
    if base is None:
        raise DamagedArchive(f"{folder} has no journal.")
    return base, entries


def _missing(last: Tip | None, base: Tip) -> int | None:
    """Return the number of rounds between the end of the files and the journal's base; None if it is unknown."""
    if last is None:
        return base.round
    if last == base:
        return 0
    return base.round - last.round if base.round > last.round else None


class _Last(NamedTuple):
    path: Path
    tip: Tip
    end: int


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9][0-9][0-9][0-9][0-9][0-9].journal"))


def _has_head(path: Path) -> bool:
    """False if the process crashed, or the disk was full, before the head was written."""
    return path.stat().st_size >= _HEAD.size


def _last(folder: Path) -> _Last | None:
    files = _files(folder)
    if files and not _has_head(files[-1]):
        files.pop().unlink()
    if not files:
        return None
    start, entries, end = _read(files[-1])
    return _Last(files[-1], entries[-1].tip if entries else start, end)


def _read(path: Path) -> tuple[Tip, list[Entry], int]:
    """The tip before the first entry, the entries, and the offset at which the last whole one ends. Raises DamagedArchive."""
    data = path.read_bytes()
    if len(data) < _HEAD.size or not data.startswith(MAGIC):
        raise DamagedArchive(f"{path} is not a journal, or is truncated.")
    _, version, round, digest = _HEAD.unpack_from(data)
    if version != VERSION:
        raise DamagedArchive(f"{path} has version {version}; this program reads version {VERSION}.")
    start = tip = Tip(round, digest)
    entries: list[Entry] = []
    offset = _HEAD.size
    while offset + _ENTRY.size <= len(data):
        count, id_bytes, blob_bytes = _ENTRY.unpack_from(data, offset)
        at = offset + _ENTRY.size
        end = at + id_bytes + blob_bytes + DIGEST_BYTES
        if end > len(data):
            break
        id, blob = data[at : at + id_bytes].decode("utf-8", "replace"), data[at + id_bytes : end - DIGEST_BYTES]
        entry = Entry.after(tip, count, id, blob)
        tip = entry.tip
        if tip.digest != data[end - DIGEST_BYTES : end]:
            raise DamagedArchive(f"{path} was damaged after round {entries[-1].tip.round if entries else round}.")
        entries.append(entry)
        offset = end
    return start, entries, offset


def _write(folder: Path, last: _Last | None, base: Tip, entries: Sequence[Entry]) -> tuple[Tip, int]:
    """Append entries. Return the tip at which the files end then, and the rounds added."""
    tip = base if last is None or last.tip != base else last.tip
    if last is not None and last.tip == base and not entries:
        return base, 0
    if last is None or last.tip != base or last.end > FILE_BYTES:
        number = 1 if last is None else int(last.path.stem) + 1
        path, end = folder / f"{number:06d}.journal", 0
    else:
        path, end = last.path, last.end
    with path.open("r+b" if end else "xb") as file:
        if end:
            # Remove an entry that a crash has truncated.
            file.truncate(end)
            file.seek(end)
        else:
            file.write(_HEAD.pack(MAGIC, VERSION, base.round, base.digest))
        for entry in entries:
            id = entry.id.encode()
            file.write(_ENTRY.pack(entry.count, len(id), len(entry.blob)) + id + entry.blob + entry.tip.digest)
            tip = entry.tip
        file.flush()
        os.fsync(file.fileno())
    return tip, sum(entry.count for entry in entries)


def check_owner(folder: Path, name: str) -> None:
    """Raises ConfigurationError if the folder belongs to another session."""
    owner = _owner(folder)
    if owner not in ("", name):
        raise ConfigurationError(
            f"{folder} has the journal of session {owner!r}; give another folder, or remove {folder / OWNER} if that was "
            "renamed."
        )


def _owner(folder: Path) -> str:
    """The session to which the folder belongs; empty if it was not claimed, as a full disk leaves an empty file."""
    path = folder / OWNER
    return path.read_text("utf-8", "replace").strip() if path.exists() else ""


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Create and lock the folder. Raises ConfigurationError if another process writes to it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(f"Another `okl archive` writes to {folder}.") from None
        yield
