"""How a challenger is fed: it plays the excerpt of its champion's journal that it has not seen.

Any worker may do this at any time, and several at once. A challenger's progress is part of its state, so the commit of a
worker that was overtaken is refused like any other, and nothing is learned twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar, final
from weakref import WeakValueDictionary

from okl.errors import (
    InvalidConfig,
    InvalidInput,
    NumericalFailure,
    SessionFull,
    let_go,
)

from ..chance import BY_CHANCE
from ..rounds import Rounds
from ..session.codec import decode_waiting, split_note
from ..session.names import challenger_name
from ..session.pairing import Note
from ..session.requests import Excerpt, ExcerptPlayed
from ..session.session import Session
from ..session.turn import Position
from ..store.base import PAGE_ITEMS, Entry, Gone, Head, Reading, Store, Tip, unless_gone
from ..store.store_checks import cursor_after
from ..telemetry.counts import Counts
from .champion import ChampionView, Unsettled, steps_of

log = logging.getLogger("okl.challengers")

ROUNDS_AT_ONCE: Final = 256
"""The most rounds in one commit, unless a single entry has more."""

MOST_KEPT: Final = 10_000
"""The most challengers whose progress, and place in their champion's waiting predictions, is kept."""
MOST_PAGES: Final = 200
"""Enough pages for more predictions than may wait in a session by default."""
MOST_NOTES: Final = 10_000
"""The most rounds of a challenger in whose notes a tip of its champion is looked for."""

T = TypeVar("T")

TRIES: Final = 10
STALE_S: Final = 0.01


class FeedResult(NamedTuple):
    """The champion's rounds up to `seen` were read, and `rounds` learned now; `refused`: why the last refused one was."""

    seen: Tip
    rounds: int
    refused: str | None


class Progress(NamedTuple):
    """A challenger whose latest entry notes the champion's tip `start` has processed all rounds up to `tip`.

    The `skipped` rounds between the two are noted in no entry; `refused`: why it refused the last of them, if it did.
    `identity` is the challenger's.
    """

    identity: bytes
    start: Tip | None
    tip: Tip | None
    skipped: int = 0
    refused: str | None = None


class Place(NamedTuple):
    """How far the waiting predictions of a champion were read for a challenger: `cursor` is valid for sessions of these
    identities, while predictions wait for `expires_s`. With another wait, later predictions may expire before it."""

    champion: bytes
    challenger: bytes
    expires_s: float | None
    cursor: str | None = None


@final
class Feeder:
    """Feeds challengers what their champions have committed. Raises ServiceError only."""

    def __init__(self, store: Store, rounds: Rounds, counts: Counts) -> None:
        self._store = store
        self._rounds = rounds
        self._counts = counts
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._places: OrderedDict[str, Place] = OrderedDict()
        """How far this worker has read the champion's waiting predictions, by challenger."""
        self._progress: OrderedDict[str, Progress] = OrderedDict()
        """How far this worker has taken each challenger."""

    async def feed(self, champion: str, name: str) -> FeedResult | None:
        """Bring the challenger to its champion's present round; None if other workers were always first.

        Raises SessionNotFound.
        """
        own = challenger_name(champion, name)
        lock = self._locks.setdefault(own, asyncio.Lock())
        # Two at once in one worker would only conflict.
        async with lock:
            return await self._feed(champion, own)

    async def _feed(self, champion: str, own: str) -> FeedResult | None:
        for _ in range(TRIES):
            before = await self._rounds.with_session(champion, ChampionView.of)
            progress = await self._rounds.with_session(own, self.progress_of)
            reading, progress = await self._read(champion, own, progress)
            unsettled, place = list[Unsettled](), None
            if before.has_waiting:
                place = self._place_of(own, before, progress)
                unsettled, place = await self._unsettled(champion, place, reading)
            now = await self._rounds.with_session(champion, ChampionView.of)
            if not before.reads_as(now):
                # The champion was replaced meanwhile, or has had its first round.
                continue
            fed = await self._play(own, progress, reading, unsettled, now)
            if fed is not None:
                if place is not None:
                    _keep(self._places, own, place)
                return fed
            # Another worker feeds it too: back off with jitter.
            await asyncio.sleep(BY_CHANCE.uniform(0.0, STALE_S))
        return None

    def progress_of(self, session: Session, _head: Head, position: Position) -> Progress:
        """Return a challenger's progress, as far as this worker knows."""
        start = None if session.pairing is None else session.pairing.tip
        known = self._progress.get(session.definition.name)
        if known is not None and (known.identity, known.start) == (position.identity, start):
            return known
        return Progress(position.identity, start, start)

    async def _read(self, champion: str, own: str, progress: Progress) -> tuple[Reading, Progress]:
        """Read the champion's entries that the challenger has not processed. If its tip is not on the champion's chain, which
        may have been taken back, those after the latest round that both know; if there is none, all stored entries.

        Return the progress at the start of the reading too. Raises SessionNotFound.
        """
        start = progress.start
        reading = unless_gone(await self._store.read(champion, progress.tip), champion)
        if reading.is_whole and progress.tip != start:
            # Rounds that were refused were taken back, or trimmed.
            progress = Progress(progress.identity, start, start)
            reading = unless_gone(await self._store.read(champion, start), champion)
        if reading.is_whole:
            # Include the entries kept from before the snapshot.
            whole = unless_gone(await self._store.whole(champion), champion)
            reading = Reading(whole.head, whole.base, whole.entries)
            if start is not None:
                reading = _after_common(reading, await self._store.last(own, MOST_NOTES))
        trimmed = 0 if progress.tip is None else max(0, reading.start.round - progress.tip.round)
        return reading, progress._replace(tip=reading.start, skipped=progress.skipped + trimmed)

    async def finish(self, champion: str, own: str, view: ChampionView) -> FeedResult | None:
        """Play the rest, up to the champion's present round; None if another worker fed it meanwhile.

        The champion's requests to this worker wait meanwhile, those to other workers do not.
        """
        progress = await self._rounds.with_session(own, self.progress_of)
        reading, progress = await self._read(champion, own, progress)
        # Skip waiting predictions: after a promotion they keep the champion's forecasts anyway.
        return await self._play(own, progress, reading, (), view)

    async def _play(
        self, own: str, progress: Progress, reading: Reading, unsettled: Sequence[Unsettled], view: ChampionView
    ) -> FeedResult | None:
        """Play a reading on the challenger; None if another worker fed it meanwhile."""
        if view.task is None:
            return FeedResult(reading.head.tip, 0, None)
        # After a roll back, the tip from before it says nothing of how far the challenger is behind.
        _keep(self._progress, own, progress)
        rounds, skipped, refused = 0, progress.skipped, progress.refused
        start, first = progress.start or reading.start, reading.start
        for entries, is_last in _in_parts(reading.entries):
            steps = list(steps_of(first, entries, unsettled if is_last else _made_until(unsettled, entries), view.task))
            if not steps:
                break
            answer = await self._play_excerpt(own, Excerpt(start, view.learner, steps, skipped))
            if answer.is_stale:
                return None
            rounds += answer.rounds
            refused = answer.refused or refused
            if entries:
                first = entries[-1].tip
                # Rounds refused after the last learned one are past, but not yet noted as skipped in any entry.
                skipped = first.round - answer.tip.round if answer.rounds else skipped + sum(e.count for e in entries)
                start = answer.tip
                reached = Progress(progress.identity, start, first, skipped, refused if skipped else None)
                _keep(self._progress, own, reached)
        self._counts.followed += rounds
        return FeedResult(reading.head.tip, rounds, refused)

    async def _play_excerpt(self, own: str, excerpt: Excerpt) -> ExcerptPlayed:
        """Play all steps at once; if a round is refused, play them again without the refused ones."""
        try:
            return await self._rounds.play_excerpt(own, excerpt)
        except (InvalidInput, InvalidConfig, NumericalFailure, SessionFull) as error:
            log.info("challenger refuses a round", extra={"session": own, "detail": error.detail})
            let_go(error)
        return await self._rounds.play_excerpt(own, replace(excerpt, is_careful=True))

    def _place_of(self, own: str, view: ChampionView, progress: Progress) -> Place:
        """Return how far this worker has read, which is nowhere if a session was replaced, or its predictions wait for
        another time."""
        nowhere = Place(view.position.identity, progress.identity, view.expires_s)
        known = self._places.get(own, nowhere)
        return known if known._replace(cursor=None) == nowhere else nowhere

    async def _unsettled(self, champion: str, place: Place, reading: Reading) -> tuple[list[Unsettled], Place]:
        """Return waiting predictions that are new to this worker, up to the end of the reading, and the place after them.

        The list is in the order of expiry, which is the order of creation if all wait equally long.
        """
        found: list[Unsettled] = []
        cursor = place.cursor
        end, latest, is_over = reading.head.tip.round, None, False
        for _ in range(MOST_PAGES):
            page = await self._store.waiting(champion, cursor, PAGE_ITEMS)
            if isinstance(page, Gone):
                break
            for one in page.items:
                entry = decode_waiting(place.champion, one.id, one.blob)
                # Stop at one made after the reading, but not at one from before a rewind, later than even the present round.
                if entry.t > end and latest is None:
                    head = await self._store.head(champion)
                    latest = 0 if isinstance(head, Gone) else head.tip.round
                is_over = latest is not None and end < entry.t <= latest
                if is_over:
                    break
                cursor = cursor_after(one.expires_at, one.id)
                if entry.t >= reading.start.round:
                    found.append(Unsettled(one.id, entry))
            if is_over or page.cursor is None:
                break
        return found, place._replace(cursor=cursor)


def _keep(kept: OrderedDict[str, T], own: str, value: T) -> None:
    """Keep the value as the latest of the most that are kept."""
    kept[own] = value
    kept.move_to_end(own)
    while len(kept) > MOST_KEPT:
        kept.popitem(last=False)


def _after_common(reading: Reading, own: Sequence[Entry] | Gone) -> Reading:
    """The part of the champion's reading after the latest tip that an entry of the challenger notes."""
    noted: set[Tip] = set()
    for entry in () if isinstance(own, Gone) else own:
        note, _ = split_note(entry.blob)
        if note is not None:
            noted.add(Note.decode(note).tip)
    start, rest = reading.start, reading.entries
    for i, entry in enumerate(reading.entries):
        if entry.tip in noted:
            start, rest = entry.tip, reading.entries[i + 1 :]
    return Reading(reading.head, start, rest)


def _in_parts(entries: Sequence[Entry]) -> list[tuple[Sequence[Entry], bool]]:
    """Parts of about ROUNDS_AT_ONCE rounds, and whether each is the last; one empty part if there are no entries."""
    parts: list[list[Entry]] = [[]]
    size = 0
    for entry in entries:
        if parts[-1] and size + entry.count > ROUNDS_AT_ONCE:
            parts.append([])
            size = 0
        parts[-1].append(entry)
        size += entry.count
    return [(part, i == len(parts) - 1) for i, part in enumerate(parts)]


def _made_until(unsettled: Sequence[Unsettled], entries: Sequence[Entry]) -> list[Unsettled]:
    """The predictions made before the end of these entries; later ones belong to the next part."""
    end = entries[-1].tip.round
    return [one for one in unsettled if one.entry.t < end]
