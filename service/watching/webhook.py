"""Delivery of alarms to a webhook: at least once, signed, and in the background.

The worker that raised an alarm delivers it, and retries while it lives, also if the session goes on from a state without the
alarm. The worker that replaces a state delivers its alarms, too. Other workers find the alarms of a dead worker in a periodic
sweep over the summaries of all sessions, in which they also write those that were lost with it. The store counts a session's
delivered alarms, so a delivery is duplicated only if a worker died, the store failed, or the state was replaced before the
count. The receiver recognises a duplicate by its id.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final, final
from urllib.parse import urlsplit

import httpx
from pydantic_core import to_json

from okl.errors import ServiceError, SessionMoved, SessionNotFound, StoreTimeout, StoreUnavailable

from .. import __version__
from ..chance import BY_CHANCE, sweep_forever
from ..rounds import Rounds
from ..session.history.alarms import MOST as MOST_ALARMS
from ..session.history.alarms import Alarm
from ..session.history.words import alarm_text
from ..session.session import Session
from ..session.summary import Summary, decode_summary, encode_summary, summary_of
from ..session.turn import Position
from ..store.all_heads import heads_of
from ..store.base import Head, Store, Tip, unless_gone
from ..telemetry.counts import Counts
from ..trace import Trace, current

log = logging.getLogger("okl.webhook")

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
"""The exponential back-off between tries: it doubles each time, and jitter shortens it by up to half."""

SWEEP_S: Final = 30.0
LEFT_S: Final = 20.0
"""An alarm that was seen waiting for less is left to the worker that raised it, and so is the summary of the last round."""

SWEPT_AT_ONCE: Final = 250
MOST: Final = 10_000
"""The most sessions that wait for delivery; a later sweep finds the others again."""

AT_ONCE: Final = 4
"""Concurrent deliveries."""

NOTED_WITHIN: Final = 3
"""Tries to note a delivery while the session goes on; if none succeeds, the alarm is delivered again."""


@dataclass(slots=True)
class _Errand:
    """A session with alarms to deliver, not before `due`; `is_new` if one was raised since the last try began. `letters` are
    the bodies found and not delivered by their ids, of the session with this identity."""

    due: float = 0.0
    tries: int = 0
    is_new: bool = True
    trace: Trace | None = None
    identity: bytes = b""
    letters: dict[str, bytes] = field(default_factory=dict)

    def find(self, untold: _Untold) -> None:
        """Add undelivered alarms. Keep those found before that a state which took the session's place lacks."""
        is_same = self.identity == untold.identity
        lacking = {id: body for id, body in self.letters.items() if is_same and id not in untold.raised}
        letters = lacking | untold.letters
        self.identity, self.letters = untold.identity, dict(list(letters.items())[-MOST_ALARMS:])


@dataclass(frozen=True, slots=True)
class _Untold:
    """Undelivered alarms of a session: their bodies in order, and their numbers, counted from 1, both by their ids. `raised`
    are the ids of its latest alarms, also of those delivered."""

    identity: bytes
    letters: dict[str, bytes]
    numbers: Mapping[str, int]
    raised: Set[str]


class NotTaken(Exception):
    """The receiver did not accept an alarm."""


@final
class Webhook:
    """A worker's deliveries to one receiver.

    Parameters
    ----------
    url, secret : the receiver's; without a secret nothing is signed
    timeout_s : the time limit of one delivery as a whole
    wait_s : the pause between the first two tries
    sweep_s, left_s : how often to look for alarms that other workers left, and how long those must have been seen waiting
    """

    def __init__(
        self,
        store: Store,
        rounds: Rounds,
        counts: Counts,
        url: str,
        secret: str,
        *,
        timeout_s: float,
        wait_s: float = FIRST_WAIT_S,
        sweep_s: float = SWEEP_S,
        left_s: float = LEFT_S,
    ) -> None:
        self._store = store
        self._rounds = rounds
        self._counts = counts
        self._url = url
        self._secret = secret.encode()
        self._timeout_s = timeout_s
        self._wait_s = wait_s
        self._sweep_s = sweep_s
        self._left_s = left_s
        self._errands: dict[str, _Errand] = {}
        self._unreadable: dict[str, Tip] = {}
        self._seen: dict[tuple[str, Tip | int], float] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        # Redirects are not followed, and only the status of an answer is read.
        limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
        agent = {"user-agent": f"okl/{__version__}", "content-type": "application/json"}
        self._client = httpx.AsyncClient(timeout=timeout_s, limits=limits, headers=agent, follow_redirects=False)

    @property
    def waiting(self) -> int:
        """The number of sessions whose alarms wait for delivery."""
        return len(self._errands)

    def note(self, name: str) -> None:
        """Note a new alarm of the session."""
        if name in self._errands or len(self._errands) < MOST:
            errand = self._errands.setdefault(name, _Errand())
            errand.is_new, errand.trace = True, current.get() or errand.trace
            self._news.set()

    def take_over(self, session: Session, position: Position, told: int) -> None:
        """Deliver the alarms, after the first `told`, of a state that another one has replaced, and that may lack them."""
        untold = _untold(session, told, position)
        if untold.letters:
            self.note(session.definition.name)
            if (errand := self._errands.get(session.definition.name)) is not None:
                errand.find(untold)

    def start(self) -> None:
        """Start delivering."""
        sweeps = sweep_forever(self._sweep, self._sweep_s, log, "alarms cannot be looked for")
        self._tasks = [asyncio.create_task(self._deliver_all()), asyncio.create_task(sweeps)]

    async def close(self) -> None:
        """Stop; another worker, or the next one, finds the alarms not delivered."""
        tasks = [*self._tasks, *self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.aclose()

    # -- sessions with alarms -------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        now, seen = time.monotonic(), dict[tuple[str, Tip | int], float]()

        def is_left(name: str, standing: Tip | int) -> bool:
            # The clocks of workers and store may differ, so this worker takes the time since it first saw this itself.
            since = seen[name, standing] = self._seen.get((name, standing), now)
            return now - since >= self._left_s

        async for head in heads_of(self._store, SWEPT_AT_ONCE):
            # The alarms of a session that has moved away are delivered where it is now.
            if head.seal or head.name in self._errands:
                continue
            summary = decode_summary(head.summary)
            is_lost = head.summary_round < head.tip.round and is_left(head.name, head.tip)
            if is_lost:
                summary = await self._write_summary(head) or summary
            if summary.alarms > head.told and (is_left(head.name, head.told) or is_lost):
                self.note(head.name)
        self._seen = seen

    async def _write_summary(self, head: Head) -> Summary | None:
        """Write a summary that was lost with a worker; None if it cannot be loaded. Raises StoreUnavailable, StoreTimeout."""
        if self._unreadable.get(head.name) == head.tip:
            return None
        try:
            tip, summary = await self._rounds.with_session(head.name, _summary)
        except (StoreUnavailable, StoreTimeout):
            raise
        except ServiceError as error:
            if error.retry_after_s is None and len(self._unreadable) < MOST:
                # Loading it would fail again, until it is repaired.
                self._unreadable[head.name] = head.tip
            return None
        await self._store.summarize(head.name, tip, encode_summary(summary))
        return summary

    # -- delivery -------------------------------------------------------------------------------------------------------

    async def _deliver_all(self) -> None:
        while True:
            self._news.clear()
            now = time.monotonic()
            idle = [(one.due, name) for name, one in self._errands.items() if name not in self._under_way]
            for due, name in sorted(idle)[: AT_ONCE - len(self._under_way)]:
                if due <= now:
                    self._under_way[name] = asyncio.create_task(self._run(name, self._errands[name]))
            waits = [due - now for due, name in idle if name not in self._under_way]
            is_full = len(self._under_way) >= AT_ONCE
            try:
                # The end of a delivery sets `_news`, too.
                await asyncio.wait_for(self._news.wait(), None if is_full or not waits else max(0.0, min(waits)))
            except TimeoutError:
                continue

    async def _run(self, name: str, errand: _Errand) -> None:
        """Try once to deliver all alarms of a session."""
        errand.is_new = False
        try:
            await self._tell(name, errand)
        except Exception as error:
            # Back off after any error; the alarm stays pending.
            errand.tries += 1
            wait = self._wait_before(errand.tries)
            errand.due = time.monotonic() + wait
            self._counts.webhook_failures += 1
            facts = {"session": name, "receiver": urlsplit(self._url).hostname, "detail": _detail(error)}
            log.warning("alarm not delivered", extra=facts | {"tries": errand.tries, "again_in_s": round(wait, 1)})
        else:
            errand.due, errand.tries = 0.0, 0
            if not errand.is_new:
                del self._errands[name]
        finally:
            del self._under_way[name]
            self._news.set()

    def _wait_before(self, tries: int) -> float:
        longest = min(LONGEST_WAIT_S, self._wait_s * 2.0 ** min(tries - 1, 30))
        return longest * BY_CHANCE.uniform(0.5, 1.0)

    async def _tell(self, name: str, errand: _Errand) -> None:
        """Deliver a session's alarms, unless it is gone or has moved. Raises NotTaken, ServiceError."""
        try:
            untold = await self._rounds.with_session(name, _untold_now)
            errand.find(untold)
            for id, body in tuple(errand.letters.items()):
                await self._post(id, body, errand.trace)
                errand.letters.pop(id, None)
                self._counts.alarms_told += 1
                if id in untold.numbers:
                    await self._note_told(name, untold.numbers[id], id)
        except (SessionNotFound, SessionMoved):
            return

    async def _note_told(self, name: str, number: int, id: str) -> None:
        """Note that an alarm was delivered, unless the session was replaced by one that has not raised it.

        Raises SessionNotFound, ServiceError.
        """

        def tip_after(session: Session, _: Head, position: Position) -> Tip | None:
            return position.tip if id in _ids(session, position) else None

        for _ in range(NOTED_WITHIN):
            tip = await self._rounds.with_session(name, tip_after)
            if tip is None or await self._store.told(name, tip, number):
                return
            if unless_gone(await self._store.head(name), name).told >= number:
                return

    async def _post(self, id: str, body: bytes, trace: Trace | None) -> None:
        """Send one alarm. Raises NotTaken."""
        headers = {"okl-alarm": id}
        if self._secret:
            headers["okl-signature"] = signature(self._secret, int(time.time()), body)
        if trace is not None:
            headers["traceparent"] = trace.child()
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream("POST", self._url, content=body, headers=headers) as answer,
            ):
                status = answer.status_code
        except TimeoutError:
            raise NotTaken(f"no answer within {self._timeout_s:g} s") from None
        if not 200 <= status < 300:
            raise NotTaken(f"status {status}")


def _detail(error: Exception) -> str:
    """Return the text of an error; only the type of foreign ones, whose text may contain the url."""
    if isinstance(error, ServiceError):
        return error.detail
    return str(error) if isinstance(error, NotTaken) else type(error).__name__


def _id_of(identity: bytes, alarm: Alarm) -> str:
    """Return the name that no other alarm ever has."""
    # The time is in microseconds. A session that goes on from an earlier state raises other alarms at the same rounds.
    return f"{identity.hex()}-{alarm.t}-{alarm.kind}-{1e6 * alarm.at:.0f}"


def _summary(session: Session, _: Head, position: Position) -> tuple[Tip, Summary]:
    return position.tip, summary_of(session)


def _untold_now(session: Session, head: Head, position: Position) -> _Untold:
    return _untold(session, head.told, position)


def _untold(session: Session, told: int, position: Position) -> _Untold:
    alarms, task, ids = session.history.alarms, session.task, _ids(session, position)
    if alarms is None or task is None:
        return _Untold(position.identity, {}, {}, ids)
    untold = {_id_of(position.identity, one): one for one in alarms.after(told)}
    name, is_classifier = session.definition.name, task.truths.is_classifier
    letters = {id: _letter(id, name, one, is_classifier=is_classifier) for id, one in untold.items()}
    numbers = {id: number for number, id in enumerate(untold, start=alarms.count - len(untold) + 1)}
    return _Untold(position.identity, letters, numbers, ids)


def _ids(session: Session, position: Position) -> Set[str]:
    alarms = session.history.alarms
    return frozenset() if alarms is None else {_id_of(position.identity, one) for one in alarms.latest}


def _letter(id: str, name: str, alarm: Alarm, *, is_classifier: bool) -> bytes:
    return to_json(
        {"id": id, "session": name, "kind": alarm.kind, "t": alarm.t, "at": alarm.at}
        | {"text": alarm_text(alarm, is_classifier=is_classifier)}
        | {"before": alarm.before, "after": alarm.after, "since": alarm.since}
    )


def signature(secret: bytes, at: int, body: bytes) -> str:
    """Return the `Okl-Signature` header of a body sent at this time, in seconds since the epoch.

    Examples
    --------
    >>> signature(b"key", 0, b"{}")
    't=0,v1=7314351dd949aa7ec06f50fc2c96e618291447672c9b7f10b49d1ce46dad00b3'
    """
    digest = hmac.new(secret, b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"
