"""What a challenger knows of the champion that it follows: how far it has come, and how their errors compare.

A challenger is a session named `<champion>~<name>`: what follows whom is in the names alone. It is given the champion's
rounds in the order of the champion's journal. Each of its own entries carries a *note*, little-endian, from which all this
follows again on a replay:

    note     u32 learner, u64 round, 16 bytes digest, u64 skipped, f64[] errors

`round` and `digest` are the champion's tip after the entry, `skipped` the rounds of the champion before it that were not
learned, `errors` those of the champion, one a round of the entry, NaN where there is nothing to compare with. `learner` names
the champion's learner: when that is another one, the comparison begins again.
"""

from __future__ import annotations

import copy
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np

from okl_core.contract.state import pack, unpack
from okl_core.errors import StateFormatError
from okl_core.monitoring.duel import Duel
from okl_core.types import Stored

from ..store.base import DIGEST_BYTES, Tip

MARK = "~"
WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""The name that somebody gives a session, or what belongs to one."""
SESSION_NAME = f"{WORD}({MARK}{WORD})?"
"""A challenger's is its champion's, the mark, and its own."""
_NOTE = struct.Struct(f"<IQ{DIGEST_BYTES}sQ")


def is_challenger(name: str) -> bool:
    """Is this the name of a session that follows another?"""
    return MARK in name


def challenger_name(champion: str, name: str) -> str:
    return f"{champion}{MARK}{name}"


class Note(NamedTuple):
    """What an entry of a challenger says of its champion."""

    learner: int
    tip: Tip
    skipped: int
    errors: Sequence[float]

    def encode(self) -> bytes:
        head = _NOTE.pack(self.learner, self.tip.round, self.tip.digest, self.skipped)
        return head + np.array(self.errors, dtype="<f8").tobytes()

    @classmethod
    def decode(cls, blob: bytes) -> Note:
        """Raises StateFormatError."""
        try:
            learner, round, digest, skipped = _NOTE.unpack_from(blob)
            errors = np.frombuffer(blob, "<f8", offset=_NOTE.size).tolist()
        except (struct.error, ValueError) as error:
            raise StateFormatError(f"what is noted of the champion cannot be read: {error}") from error
        return cls(learner, Tip(round, digest), skipped, errors)


@final
@dataclass(slots=True)
class Following:
    """`tip` is the champion's after the last round seen, None before a challenger is attached. `missed` counts the rounds
    that were learned and not compared, `skipped` those that were not learned."""

    tip: Tip | None = None
    learner: int | None = None
    missed: int = 0
    skipped: int = 0
    duel: Duel | None = None
    _errors: list[float] = field(default_factory=list)
    """The champion's, of rounds that are about to be learned; the next one last."""

    def take(self, note: Note | bytes | None) -> None:
        """The rounds of this note are learned next. Raises StateFormatError."""
        if note is None:
            raise StateFormatError("an entry of a challenger has no note of its champion")
        found = note if isinstance(note, Note) else Note.decode(note)
        if self.learner not in (None, found.learner):
            self.duel, self.missed = None, 0
        self.learner, self.tip = found.learner, found.tip
        self.skipped += found.skipped
        self._errors = list(reversed(found.errors))

    def add(self, own_error: float, *, is_of_numbers: bool) -> None:
        """A round was learned, with this error."""
        theirs = self._errors.pop() if self._errors else math.nan
        if math.isnan(theirs):
            self.missed += 1
            return
        if self.duel is None:
            self.duel = Duel(is_of_numbers=is_of_numbers)
        self.duel.add(own_error, theirs)

    def copy(self) -> Following:
        return copy.deepcopy(self)

    def pack(self) -> tuple[dict[str, Stored], dict[str, Any]]:
        """Arrays, and what goes to JSON."""
        arrays = {} if self.duel is None else pack(self.duel)
        tip = None if self.tip is None else [self.tip.round, self.tip.digest.hex()]
        return arrays, {"tip": tip, "learner": self.learner, "missed": self.missed, "skipped": self.skipped}

    @classmethod
    def unpack(cls, arrays: Mapping[str, Stored], told: Mapping[str, Any]) -> Following:
        """Raises StateFormatError, KeyError, ValueError, TypeError."""
        tip = None if told["tip"] is None else Tip(int(told["tip"][0]), bytes.fromhex(told["tip"][1]))
        duel = unpack(Duel, dict(arrays)) if arrays else None
        learner = None if told["learner"] is None else int(told["learner"])
        return cls(tip, learner, int(told["missed"]), int(told["skipped"]), duel)
