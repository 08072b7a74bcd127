"""predict, update, step and rounds: one commit loop for all.

A request that finds its session idle is played on the worker's copy and committed in one call, a compare-and-swap on the
session's tip. The client is answered once the commit is durable, and the round is learned afterwards. Requests that arrive
during the call queue, and go into the next commit together.

A refused commit changes nothing: the worker catches up, or loads the session anew, and plays the same requests again. An
error refuses a request only if the commit of its turn confirms that the copy was at the session's tip.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from okl.errors import ServiceError, SessionNotFound
from okl_core.errors import OklError

from .replica.cache import Replicas
from .replica.first_use import Make, make_missing
from .replica.playing import play_turn
from .replica.queue import Queues
from .replica.replay import catch_up, failed
from .replica.replica import Replica
from .replica.scheduling import Scheduler
from .replica.snapshots import Snapshots
from .replica.summaries import Summaries
from .replica.tickets import Queued, Sender, SessionCall, Ticket, TicketAnswers, answer_ticket, known_under, still_open
from .session import requests
from .session.definition import Input
from .session.limits import SessionLimits
from .session.moment import Moment
from .session.requests import Answers, ExcerptPlayed, Part, Predicted, Question, Report, RoundsPlayed, Stepped, Updated
from .session.session import Session
from .session.turn import Position, Turn
from .store.base import Applied, Behind, Committed, Gone, Head, Reading, Store, Waiting, unless_gone
from .store.moving import sealed
from .telemetry.counts import Counts

log = logging.getLogger("okl.sessions")

T = TypeVar("T")


class Rounds:
    """All work on sessions. Raises ServiceError only.

    Parameters
    ----------
    patience_s : how long a request may take, including its time in the queue, before it is refused as Overloaded
    queue : how many requests may queue at one session
    alarmed, committed : called with the name of a session after this worker raised an alarm in it, or committed to it
    make : makes a missing session, if there is a template for it
    clock : seconds since the epoch, recorded in the history; nothing depends on it
    """

    def __init__(
        self,
        store: Store,
        replicas: Replicas,
        scheduler: Scheduler,
        snapshots: Snapshots,
        summaries: Summaries,
        limits: SessionLimits,
        *,
        patience_s: float,
        queue: int,
        counts: Counts | None = None,
        alarmed: Callable[[str], None] | None = None,
        committed: Callable[[str], None] | None = None,
        make: Make | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._store = store
        self.replicas = replicas
        """The worker's copies."""
        self._scheduler = scheduler
        self._snapshots = snapshots
        self.summaries = summaries
        """What lists show of the sessions, written now and then."""
        self._limits = limits
        self._counts = counts or Counts()
        self._on_alarm = alarmed
        self._on_commit = committed
        self._make = make
        self._patience_s = patience_s
        self._queues = Queues(replicas, self._serve, self._finish, queue)
        self._id_prefix = secrets.token_urlsafe(3)
        self._id_count = itertools.count()

    @property
    def queued(self) -> int:
        """The number of requests that wait for their turn at a session."""
        return self._queues.queued

    async def close(self) -> None:
        """Wait for the commits under way, and write the summaries that are due."""
        await self._queues.close()
        await self._snapshots.close()
        self._scheduler.close()
        await self.summaries.close()

    # -- requests -----------------------------------------------------------------------------------------------------

    async def predict(self, name: str, x: Input, *, id: str | None = None, wait: bool = True) -> Predicted:
        """Forecast at the present round; keep it until its truth comes, unless `wait` is false or the session is frozen."""
        return await self._ask_one(Predicted, name, self.question(x, id, wait))

    async def predict_many(
        self, name: str, xs: Sequence[Input], *, ids: Sequence[str] | None = None, wait: bool = True
    ) -> list[Predicted | ServiceError]:
        """Forecast at one round, in one commit; errors stand for forecasts not kept. A wrong input refuses all, and so does
        an answer that would be too large."""
        row_ids: Sequence[str | None] = ids if ids is not None else [None] * len(xs)
        rows = enumerate(zip(xs, row_ids, strict=True))
        parts = [self.question(x, id, wait)._replace(pointer=f"/x/{row}") for row, (x, id) in rows]
        parts[0] = parts[0]._replace(together=len(parts))
        answers = await self._ask(name, parts)
        return [one if isinstance(one, ServiceError) else requests.as_result(Predicted, one) for one in answers]

    async def cancel(self, name: str, id: str) -> bool:
        """Cancel a prediction whose truth will never come; False if none waits under the id."""
        self.replicas.forget(name, id)
        return await self._store.cancel(name, id)

    async def update(self, name: str, report: Report) -> Updated:
        """Play, commit and learn one round; a duplicate update gets the first answer."""
        return await self._ask_one(Updated, name, report)

    async def step(self, name: str, report: Report, x: Input, *, id: str | None = None, wait: bool = True) -> Stepped:
        """Learn the truth of one round, then predict the next, in one commit."""
        return Stepped.of(await self._ask(name, requests.halves(report, self.question(x, id, wait))))

    async def rounds(self, name: str, batch: requests.Batch) -> RoundsPlayed:
        """Play many rounds in order, committed together."""
        return await self._ask_one(RoundsPlayed, name, batch)

    async def with_session(self, name: str, work: Callable[[Session, Head, Position], T | Awaitable[T]]) -> T:
        """Return what `work` makes of the session at its tip; this worker's other requests to the session wait meanwhile."""
        loop = asyncio.get_running_loop()
        return await self._queues.ask(name, SessionCall(work, loop.time() + self._patience_s, loop.create_future()))

    async def play_excerpt(self, name: str, excerpt: requests.Excerpt) -> ExcerptPlayed:
        """Play the champion's steps on a challenger."""
        return await self._ask_one(ExcerptPlayed, name, excerpt)

    def question(self, x: Input, id: str | None, wait: bool) -> Question:
        """The question for a prediction, which gets a new id unless it has one or will not be kept."""
        return Question(x, (id or self.new_id()) if wait else None)

    def new_id(self) -> str:
        """Return an id that no worker has made before, and that nobody can guess.

        A guessed id, sent with another request of the turn, would name two rounds of one commit. The random end rules that
        out; the count keeps the ids apart, and those that follow each other near each other in the store's tables.
        """
        return f"{self._id_prefix}{next(self._id_count):x}-{secrets.token_urlsafe(6)}"

    def answer_bytes(self, name: str) -> int:
        """About the most bytes of the answer to a message of a stream; 0 while this worker has no copy of the session."""
        return self.replicas.answer_bytes(name)

    def begin(self, name: str, parts: Sequence[Part], sender: Sender | None = None) -> asyncio.Future[Answers]:
        """Queue these parts, for one commit, without waiting; parts are played in the order of calls. Raises Overloaded."""
        ticket = self._ticket(parts, sender)
        self._queues.put(name, ticket)
        return ticket.answer

    async def _ask_one(self, kind: type[requests.T], name: str, part: Part) -> requests.T:
        """The answer to a request of one part, which has this kind. Raises the ServiceError that refused it."""
        answers = await self._queues.ask(name, self._ticket([part]))
        return requests.as_result(kind, answers[0])

    async def _ask(self, name: str, parts: Sequence[Part]) -> Answers:
        return await self._queues.ask(name, self._ticket(parts))

    def _ticket(self, parts: Sequence[Part], sender: Sender | None = None) -> Ticket:
        loop = asyncio.get_running_loop()
        return Ticket(parts, loop.time() + self._patience_s, loop.create_future(), sender)

    # -- the commit loop ----------------------------------------------------------------------------------------------

    async def _serve(self, replica: Replica, taken: Sequence[Queued]) -> None:
        """Answer the requests of one turn: try until each has its answer."""
        while taken := still_open(replica, taken):
            try:
                # Learn what the turn before has left unfinished.
                await self._finish(replica)
                if isinstance(taken[0], SessionCall):
                    await self._serve_call(replica, taken[0])
                else:
                    most = 1 if replica.is_one_by_one else len(taken)
                    tickets = [ticket for ticket in taken[:most] if isinstance(ticket, Ticket)]
                    if await self._know(replica, tickets):
                        await self._turn(replica, tickets)
            except ServiceError as error:
                refused = await make_missing(error, replica.name, taken, self._make)
                if refused is not None:
                    for ticket in taken:
                        ticket.refuse(refused)

    async def _loaded(self, replica: Replica) -> Session:
        """Return the session's copy at the tip that this worker knows, loaded from the store if necessary."""
        if replica.session is not None:
            return replica.session
        reading = unless_gone(await self._store.read(replica.name), replica.name)
        return await self._bring_up(replica, reading)

    async def _bring_up(self, replica: Replica, reading: Reading) -> Session:
        if reading.head.seal:
            replica.drop()
            raise sealed(replica.name, reading.head.seal)
        is_next = replica.position is not None and replica.position.tip == reading.start
        if not (reading.is_whole or (replica.session is not None and is_next)):
            # The copy that the reading continues was dropped.
            replica.drop()
            return await self._loaded(replica)
        try:
            session = await catch_up(replica, reading, self._scheduler, self._counts)
        except ServiceError:
            replica.drop()
            raise
        self.replicas.make_room(replica)
        return session

    async def _know(self, replica: Replica, tickets: Sequence[Ticket]) -> bool:
        """Look up the ids that this worker does not know. False if its copy was behind, so that known ids may be settled."""
        await self._loaded(replica)
        now = asyncio.get_running_loop().time()
        asked: list[tuple[Ticket, str]] = []
        of_this_turn: set[str] = set()
        for ticket in tickets:
            of_this_turn |= ticket.asked
            for id in ticket.settled if ticket.may_repeat else ticket.settled - of_this_turn:
                prediction = replica.waiting.get(id)
                # Another worker may have settled in time a prediction that has expired here.
                if id not in ticket.known and (prediction is None or prediction.until <= now):
                    asked.append((ticket, id))
        if not asked:
            return True
        assert replica.position is not None
        tip = replica.position.tip
        answers = await asyncio.gather(*(self._store.find(replica.name, tip, id) for _, id in asked))
        latest: Reading | None = None
        for (ticket, id), found in zip(asked, answers, strict=True):
            if isinstance(found, Gone):
                replica.drop()
                raise SessionNotFound(replica.name)
            # That nothing is known of an id which the turn itself predicts would be false in the next turn.
            if found.what is not None or id not in of_this_turn:
                ticket.known[id] = found.what
            if found.missed is not None and (latest is None or found.missed.head.tip.round >= latest.head.tip.round):
                latest = found.missed
        if latest is None:
            return True
        await self._move(replica, latest, tickets)
        return False

    async def _move(self, replica: Replica, reading: Reading, tickets: Sequence[Ticket]) -> None:
        """Bring the copy to the session's tip. Lookups are void if the session must be loaded anew."""
        if reading.is_whole:
            for ticket in tickets:
                ticket.known.clear()
        await self._bring_up(replica, reading)
        # Start the time of contention now: a load that outlasts it would otherwise lose the next race too, and so on.
        replica.contend()

    async def _turn(self, replica: Replica, tickets: Sequence[Ticket]) -> None:
        """Try once to play, commit and answer. If another worker committed first, nobody is answered yet."""
        session, position = replica.session, replica.position
        assert session is not None
        assert position is not None
        learns_ahead = tickets[0].is_alone or sum(len(ticket.parts) for ticket in tickets) > 1
        before = session.copy() if learns_ahead and replica.is_contended else None
        moment = Moment.of(self._clock(), replica.round_s, replica.size, replica.store_waiting, replica.never_came)
        known = known_under(replica, tickets)
        turn = Turn(session, position, replica.size, known, self._limits, self.new_id, moment)
        played, void = await play_turn(self._scheduler, replica, turn, tickets)
        entries, holds, progress = ([], [], None) if void else (turn.entries, turn.holds, turn.progress)
        try:
            answer = await self._store.commit(replica.name, position.tip, entries, holds, progress)
        except ServiceError:
            replica.undo(turn, before)
            raise
        if isinstance(answer, Committed) and void is None:
            self._committed(replica, turn, played, answer)
            return
        replica.undo(turn, before)
        match answer:
            case Committed() if void is not None:
                ticket, error = void
                ticket.refuse(error)
            case Applied() | Waiting():
                for ticket in tickets:
                    ticket.may_repeat = True
                    if answer.id in ticket.ids:
                        ticket.known[answer.id] = answer
            case Behind(reading):
                self._counts.conflicts += 1
                await self._move(replica, reading, tickets)
            case Gone():
                replica.drop()
                raise SessionNotFound(replica.name)

    def _committed(self, replica: Replica, turn: Turn, played: TicketAnswers, answer: Committed) -> None:
        """Answer the tickets of a durable turn. Its last round is learned once the answers are on their way."""
        rounds, counts = turn.rounds, self._counts
        counts.commits += 1
        counts.rounds += rounds
        counts.entries += len(turn.entries)
        if self._on_commit is not None:
            self._on_commit(replica.name)
        replica.store_waiting, replica.never_came = answer.waiting, answer.never_came
        if turn.entries:
            replica.session, replica.position = turn.session, turn.position
            replica.forget(entry.id for entry in turn.entries)
            replica.journal.add(rounds, turn.nbytes, rounds * replica.round_s)
            replica.unfinished = turn
        elif turn.has_predicted and turn.session.definition.template is not None:
            replica.has_asked = True
            self.summaries.note(replica)
        counts.unkept += replica.keep(turn, answer.holds, asyncio.get_running_loop().time())
        outcomes = {hold.id: outcome for hold, outcome in zip(turn.holds, answer.holds, strict=True)}
        for ticket, results_of in played:
            counts.repeated += answer_ticket(ticket, results_of, outcomes)
        self.replicas.note_growth(replica, rounds + len(turn.holds))

    async def _finish(self, replica: Replica) -> None:
        """Learn the last round of a durable turn, and write a snapshot if one is due."""
        turn, replica.unfinished = replica.unfinished, None
        if turn is None:
            return
        if turn.is_pending:
            replica.session = None
            try:
                await self._scheduler.rounds(replica, turn.learn, 1, is_long=turn.session.has_long_round(1))
            except OklError as error:
                # It would fail on every replay too, so the next request reports it.
                replica.drop()
                failed(replica.name, turn.session, error)
                return
            replica.session = turn.session
        if turn.session.history.alarm_count > replica.alarms:
            replica.alarms = turn.session.history.alarm_count
            if self._on_alarm is not None:
                self._on_alarm(replica.name)
        self.summaries.note(replica)
        await self._snapshots.consider(replica)

    async def _serve_call(self, replica: Replica, call: SessionCall) -> None:
        try:
            position = replica.position
            reading = await self._store.read(replica.name, None if position is None else position.tip)
            if isinstance(reading, Gone):
                replica.drop()
                raise SessionNotFound(replica.name)
            session = await self._bring_up(replica, reading)
            assert replica.position is not None
            now = replica.position
            result = await self._scheduler.bytes(session.nbytes, lambda: call.work(session, reading.head, now))
            if isinstance(result, Awaitable):
                result = await result
        except (ServiceError, OklError) as error:
            call.refuse(error)
        else:
            if not call.answer.done():
                call.answer.set_result(result)
