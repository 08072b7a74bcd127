"""What a run asks of its store: to be there, to be whole before a fault, and to have faults."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from bench.history.attempts import Cut

Now = Callable[[], float]
"""Seconds since the run began."""

REPLICATION_LAG_S = 2.0
"""Replicas may be behind by so much when a fault comes."""

EVERYSEC_LOSS_S = 2.5
"""What `appendfsync everysec` may lose: a second, or two where the disk is slow."""

WHOLE_WITHIN_S = 300.0
"""Sentinels that do not get the processor in time do nothing for half a minute (TILT), and again."""

STARTED_WITHIN_S = 180.0
"""Processes take their time where the machine has other work too."""


class OwnStore(Protocol):
    """A store of the run's own. `kinds` are the faults that it can have."""

    url: str
    kinds: Sequence[str]

    def start(self) -> None: ...

    def close(self) -> None: ...

    def settle(self) -> None:
        """Wait until all parts run and are in step. Raises TimeoutError."""
        ...

    def inject(self, kind: str, dice: Random) -> tuple[str, Sequence[Cut]]:
        """Have a fault, and run again at the end of it: what was done in words, and what was cut."""
        ...

    def kept(self) -> None:
        """Read what the backups that were restored have kept, and add it to their cuts. Only when all is over."""
        ...


def wait_for(is_so: Callable[[], bool], what: str, within_s: float = WHOLE_WITHIN_S) -> None:
    """Raises TimeoutError."""
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:.0f} s: {what}")
        time.sleep(0.03)
