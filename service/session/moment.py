"""The circumstances of a round, recorded for the history alone: no learning depends on them."""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

_MOMENT = struct.Struct("<dfffII")
_SINGLE = struct.Struct("<f")
MOMENT_BYTES = _MOMENT.size
MOST = 2**32 - 1


class Moment(NamedTuple):
    """When a round was played, and the state of its session then.

    `at`: seconds since the epoch by the worker's clock; `waited_s`: between the prediction and its truth, NaN without a
    prediction; `took_s`: about what a round takes; `nbytes`: memory of the learner, as last measured; both are 0 before the
    first measurement. `waiting`, `never_came`: predictions of the session after the round, from the store's last count.
    """

    at: float = 0.0
    waited_s: float = math.nan
    took_s: float = 0.0
    nbytes: float = 0.0
    waiting: int = 0
    never_came: int = 0

    @classmethod
    def of(cls, at: float, took_s: float, nbytes: float, waiting: int, never_came: int) -> Moment:
        """The moment as the journal returns it: all but `at` in single precision, and counts of 32 bits."""
        return unpack_moment(_MOMENT.pack(at, math.nan, took_s, nbytes, min(waiting, MOST), min(never_came, MOST)))

    def after(self, asked_at: float) -> Moment:
        """The moment of a truth whose prediction was made at `asked_at`, perhaps by a worker whose clock is ahead, and no
        longer waits."""
        [waited_s] = _SINGLE.unpack(_SINGLE.pack(max(0.0, self.at - asked_at)))
        return Moment(self.at, waited_s, self.took_s, self.nbytes, max(self.waiting - 1, 0), self.never_came)

    def packed(self) -> bytes:
        return _MOMENT.pack(*self)


NO_MOMENT = Moment()


def unpack_moment(blob: bytes, start: int = 0) -> Moment:
    """Raises struct.error."""
    return Moment(*_MOMENT.unpack_from(blob, start))
