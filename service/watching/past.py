"""The past of sessions: their history, their last rounds, and the predictions that wait."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from okl_core.records.record import Raw

from ..pointers import invalid
from ..rounds import Rounds
from ..session.codec import BlockEntry, RoundEntry, decode_entry, decode_waiting
from ..session.definition import Scalar
from ..session.history.view import HistoryView, view_of
from ..session.requests import id_of_request
from ..session.scorecard import Issued
from ..session.session import Session
from ..session.summary import summary_of
from ..session.task import Task
from ..session.turn import Position
from ..sessions import Listed
from ..store.base import Entry, Head, Store, unless_gone

AGES_S = (1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0)
"""Edges of the bins for the age of waiting predictions; the last bin is open."""


@dataclass(frozen=True, slots=True)
class PastHistory:
    """The history of a session at round `t`; `view` is None before the first round."""

    t: int
    view: HistoryView | None


@dataclass(frozen=True, slots=True)
class PastRound:
    """A past round. `id` is its request's; `label` or `value` is the prediction that the client got, None if not recorded.

    `probability` is that of the label. `error` is 1 or 0 for a mistake or none, or prediction minus truth in the session's
    units.
    """

    t: int
    id: str
    at: float
    x: Raw
    y: Scalar
    label: Scalar | None
    value: float | None
    probability: float | None
    loss: float | None
    error: float | None
    waited_s: float | None


@dataclass(frozen=True, slots=True)
class WaitingRound:
    """A prediction that waits for its truth, made at round `t` and time `at`."""

    id: str
    t: int
    at: float
    expires_at: float
    x: Raw


@dataclass(frozen=True, slots=True)
class Ages:
    """The number of predictions that have waited from `start_s` to `end_s` seconds; None for an open end."""

    start_s: float
    end_s: float | None
    predictions: int


@dataclass(frozen=True, slots=True)
class WaitingList:
    """A page of waiting predictions, in the order of expiry."""

    predictions: Sequence[WaitingRound]
    cursor: str | None
    waiting: int
    never_came: int
    ages: Sequence[Ages]


class PastReader:
    """Reads the past of sessions. Raises ServiceError only."""

    def __init__(self, store: Store, rounds: Rounds, *, waiting_s: float) -> None:
        self._store = store
        self._rounds = rounds
        self._waiting_s = waiting_s

    async def line(self, name: str) -> Listed:
        """The session's line in a list, with its present summary."""
        return await self._rounds.with_session(name, lambda session, head, _: Listed(head, summary_of(session)))

    async def head(self, name: str) -> Head:
        """The session's head in the store."""
        return unless_gone(await self._store.head(name), name)

    async def history(self, name: str) -> PastHistory:
        return await self._rounds.with_session(name, lambda session, *_: _history_of(session))

    async def last(self, name: str, rounds: int) -> list[PastRound]:
        """The last rounds that the store keeps, the newest first."""
        entries = unless_gone(await self._store.last(name, rounds), name)
        # Read the task after the entries, which may contain a new label.
        task = await self._rounds.with_session(name, lambda session, *_: session.task)
        if task is None:
            return []
        newest = (past for entry in reversed(entries) for past in _past_rounds(entry, task))
        return list(islice(newest, rounds))

    async def waiting(self, name: str, after: str | None, limit: int) -> WaitingList:
        """A page of waiting predictions, and the ages of all; ages assume that the waiting time was never changed."""
        identity, wait_s = await self._rounds.with_session(name, self._waits_of)
        try:
            page = unless_gone(await self._store.waiting(name, after, limit), name)
        except ValueError:
            raise invalid("/cursor", "is not the `next` of a page") from None
        # An older prediction expires sooner.
        edges = [*(wait_s - age for age in reversed(AGES_S)), math.inf]
        before = unless_gone(await self._store.count_waiting(name, edges), name)
        head = await self.head(name)
        predictions = []
        for one in page.items:
            entry = decode_waiting(identity, one.id, one.blob)
            predictions.append(WaitingRound(one.id, entry.t, entry.at, one.expires_at, entry.x))
        # The head still counts those as waiting that have expired since the last commit.
        never_came = head.never_came + max(head.waiting - before[-1], 0)
        return WaitingList(predictions, page.cursor, before[-1], never_came, _ages(before))

    def _waits_of(self, session: Session, _: Head, position: Position) -> tuple[bytes, float]:
        return position.identity, session.definition.expires_s or self._waiting_s


def _history_of(session: Session) -> PastHistory:
    return PastHistory(session.t, view_of(session.history) if session.history.rounds else None)


def _ages(older: Sequence[int]) -> list[Ages]:
    """The bins, from the numbers of predictions at least as old as each edge, the oldest first, and of all."""
    counts = [older[0], *(b - a for a, b in pairwise(older))][::-1]
    starts = (0.0, *AGES_S)
    ends = (*AGES_S, None)
    return [Ages(a, b, max(count, 0)) for a, b, count in zip(starts, ends, counts, strict=True)]


def _past_rounds(entry: Entry, task: Task) -> Iterator[PastRound]:
    """The rounds of an entry, the newest first."""
    decoded = decode_entry(entry.blob)
    if isinstance(decoded, RoundEntry):
        yield _past(entry, entry.tip.round, decoded, decoded.x, decoded.y, decoded.issued, task)
        return
    last = len(decoded.y) - 1
    for i in range(last, -1, -1):
        t = entry.tip.round - (last - i)
        yield _past(entry, t, decoded, decoded.raws[i], decoded.y.item(i), decoded.issued(i), task)


def _past(
    entry: Entry, t: int, decoded: RoundEntry | BlockEntry, x: Raw, y: float, issued: Issued, task: Task
) -> PastRound:
    truths, waited_s = task.truths, decoded.moment.waited_s
    label = value = probability = loss = error = None
    truth = truths.from_truth(y)
    if not math.isnan(issued.value):
        loss, wrong = task.judge.round(issued, y)
        if truths.has_classes and issued.label is not None and not math.isnan(issued.sure):
            label, probability, error = truths.names[issued.label], issued.sure, wrong
        elif truths.is_classifier and not truths.has_classes:
            label, error = truths.label(issued.value), wrong
            # The first label is as probable at -a as the second one at a.
            probability = task.judge.probability(abs(issued.value))
        elif not truths.is_classifier:
            value, error = truths.from_learner(issued.value), (issued.value - y) * truths.unit
    waited = None if math.isnan(waited_s) else waited_s
    return PastRound(
        t, id_of_request(entry.id), decoded.moment.at, x, truth, label, value, probability, loss, error, waited
    )
