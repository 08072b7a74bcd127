"""The pairing of a challenger with its champion: its progress in the champion's journal, and how their errors compare.

A challenger is a session named `<champion>~<name>`; the name alone says which session it follows. It learns the champion's
rounds in the order of the champion's journal. Each entry of its own journal carries a *note*, little-endian, from which a
replay restores this state:

    note     u32 learner, u64 round, 16 bytes digest, u64 skipped, f64[] errors

`round` and `digest` are the champion's tip after the entry, `skipped` counts the champion's rounds before it that were not
learned, and `errors` are the champion's, one for each round of the entry, NaN where the two cannot be compared. `learner`
identifies the champion's learner: when it changes, the comparison starts again.
"""

from __future__ import annotations

import copy
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np

from okl_core.contract.state import count_in, pack, unpack
from okl_core.errors import StateFormatError
from okl_core.monitoring.duel import Duel, Outcome
from okl_core.types import Stored

from ..store.base import DIGEST_BYTES, Tip

_NOTE = struct.Struct(f"<IQ{DIGEST_BYTES}sQ")


class Note(NamedTuple):
    """The note of a challenger's journal entry about its champion."""

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
            raise StateFormatError(f"the note of the champion cannot be read: {error}") from error
        return cls(learner, Tip(round, digest), skipped, errors)


@final
@dataclass(slots=True)
class Pairing:
    """A challenger's progress and its comparison with the champion.

    `tip` is the champion's after the last round seen, None before the challenger is attached. `missed` counts the rounds
    that were learned but not compared, `skipped` those that were not learned.
    """

    tip: Tip | None = None
    learner: int | None = None
    missed: int = 0
    skipped: int = 0
    duel: Duel | None = None
    _errors: list[float] = field(default_factory=list)
    """The champion's errors in the rounds about to be learned, in reverse order."""

    def take(self, note: Note | bytes | None) -> None:
        """Take the note of the rounds that are learned next. Raises StateFormatError."""
        if note is None:
            raise StateFormatError("an entry of a challenger has no note of its champion")
        found = note if isinstance(note, Note) else Note.decode(note)
        if self.learner not in (None, found.learner):
            self.duel, self.missed = None, 0
        self.learner, self.tip = found.learner, found.tip
        self.skipped += found.skipped
        self._errors = list(reversed(found.errors))

    def add(self, own_error: float, *, is_of_numbers: bool) -> None:
        """Record the error of a learned round."""
        theirs = self._errors.pop() if self._errors else math.nan
        if math.isnan(theirs):
            self.missed += 1
            return
        if self.duel is None:
            self.duel = Duel(is_of_numbers=is_of_numbers)
        self.duel.add(own_error, theirs)

    @property
    def outcome(self) -> Outcome | None:
        """How the two compare; None before the first round that was compared."""
        return None if self.duel is None else self.duel.outcome()

    def copy(self) -> Pairing:
        return copy.deepcopy(self)

    def pack(self) -> tuple[dict[str, Stored], dict[str, Any]]:
        """Return the arrays, and the rest as JSON."""
        arrays = {} if self.duel is None else pack(self.duel)
        tip = None if self.tip is None else [self.tip.round, self.tip.digest.hex()]
        return arrays, {"tip": tip, "learner": self.learner, "missed": self.missed, "skipped": self.skipped}

    @classmethod
    def unpack(cls, arrays: Mapping[str, Stored], document: Mapping[str, Any]) -> Pairing:
        """Raises StateFormatError, KeyError, ValueError, TypeError."""
        tip, learner = document["tip"], document["learner"]
        if tip is not None:
            tip = Tip(count_in(tip[0]), bytes.fromhex(tip[1]))
            if len(tip.digest) != DIGEST_BYTES:
                raise StateFormatError(f"a digest of the champion has {len(tip.digest)} bytes")
        if learner is not None:
            learner = count_in(learner)
        duel = unpack(Duel, dict(arrays)) if arrays else None
        return cls(tip, learner, count_in(document["missed"]), count_in(document["skipped"]), duel)
