"""Feed a CSV file to a session, in order, resuming where it stopped."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from tenacity import Retrying

from okl.answers import label_key
from okl.client import Client
from okl.errors import ConfigurationError, IdConflict, ServiceError, SessionNotFound
from okl.session import AGAIN_FOR_S
from okl.talks import again_for
from okl.values import Json

from ..escaping import escaped
from .fitting import decided, fitted, misfit
from .predictions_file import PredictionsFile, check_file
from .recording import RecordedRow, Recording, Selection, look_through
from .terminal import progress_of_rows


@dataclass(frozen=True, slots=True)
class Sending:
    """Options for sending a file: `batch` rounds per request; from the row `start`; predictions to the file `out`; the truth
    of a row after `delay` more were predicted; the first `warmup` rows neither scored nor written."""

    batch: int = 100
    start: int | None = None
    out: Path | None = None
    delay: int = 0
    warmup: int = 0


@dataclass(slots=True)
class Scored:
    """The number of rows sent by this run, without the warm-up, and their total mistakes or squared errors."""

    rows: int = 0
    total: float = 0.0
    is_of_numbers: bool = False

    def add(self, y: Any, answer: Json) -> None:
        """Add a prediction as the service answers it; an empty one, before the first truth, does not count."""
        if "value" in answer:
            self.total += (answer["value"] - y) ** 2
        elif "label" in answer:
            self.total += label_key(answer["label"]) != label_key(y)
        else:
            return
        self.is_of_numbers = "value" in answer
        self.rows += 1

    def text(self, warmup: int) -> str:
        """The score as text."""
        if not self.rows:
            return f"no row after the first {warmup:,} was sent in this run"
        mean = self.total / self.rows
        how = f"RMSE {mean**0.5:.6g}" if self.is_of_numbers else f"mistake rate {mean:.2%}"
        return f"{how} over the {self.rows:,} rows after the first {warmup:,} that were sent in this run"


def create_session(client: Client, session: str, learner: Json | str | None, recording: Recording) -> str:
    """Create a session that fits the file: its labels, or the range of its truths. Return what it takes the truths for."""
    if learner is None:
        client.create(session, **recording.settings(with_range=False))
        return recording.told
    recording = decided(recording, [learner])
    spec, settings = fitted(recording, learner)
    client.create(session, spec, **settings)
    return recording.told


def check_rows(found: Json, recording: Recording) -> None:
    """Raises ConfigurationError if the rounds of the session, as the service describes it, cannot be rows of the file."""
    session, t, count = found["name"], found["t"], recording.count
    if t > count:
        raise ConfigurationError(
            f"Nothing was sent: session {session!r} has {t:,} rounds, but the file only {count:,} rows, so they are not its "
            "rounds. Name another session or file; if other streams feed the session too, say where to begin with --start."
        )
    if (reason := misfit(recording, found)) is not None:
        raise ConfigurationError(f"Nothing was sent: the file does not fit session {session!r}: {reason}.")


def replay(
    client: Client,
    console: Console,
    path: Path,
    *,
    session: str,
    selection: Selection,
    learner: Json | str | None,
    way: Sending,
) -> tuple[Json, Scored]:
    """Send the rows that the session has not seen; return the session as the service describes it then, and the score.

    A row is a round, so the session's t is the row to resume from; `start` overrides it for a session that other streams
    feed too. Ids derive from the rows, so a request for the same rows is not learned twice,
    and one that fails for a reason that may pass, as while the service restarts, is sent again.
    """
    recording = look_through(path, selection)
    if way.start is not None and way.start > recording.count:
        raise ConfigurationError(
            f"--start {way.start}: nothing was sent, as the file has only {recording.count:,} rows."
        )
    if way.out is not None:
        check_file(way.out)
    try:
        found = client.inspect(session)
    except SessionNotFound:
        told = create_session(client, session, learner, recording)
        console.print(escaped(f"{session}: created, for {told}"), highlight=False, markup=False, soft_wrap=True)
        found = client.inspect(session)
    if way.start is None:
        check_rows(found, recording)
    takes_lists = found["settings"]["dim"] is not None
    done = found["t"] if way.start is None else way.start
    scored = Scored()
    if done == recording.count:
        detail = f"nothing to send: the file ends with row {done - 1:,}"
        if way.start is None:
            detail = f"nothing to send: all {done:,} rows of the file were learned before"
        console.print(f"{session}: {detail}", highlight=False, markup=False, soft_wrap=True)
    with progress_of_rows(console) as progress:
        task = progress.add_task(session, total=recording.count, completed=min(done, recording.count))
        rows = islice(recording.rows(), done, recording.count)
        sender = _Sender(client, console, session, way, scored, takes_lists)
        sent = sender.in_batches(rows) if way.out is None and not way.delay else sender.one_by_one(rows, done)
        for last in sent:
            progress.update(task, completed=last)
    return surely(client.inspect, session), scored


def surely(request: Callable[..., Json], *given: Any, **named: Any) -> Json:
    """The answer of a request, which is sent again for `AGAIN_FOR_S` if its error may pass."""
    return Retrying(**again_for(AGAIN_FOR_S))(request, *given, **named)


@dataclass(slots=True)
class _Sender:
    """Sends rows; its methods yield how many rows of the file are done."""

    client: Client
    console: Console
    session: str
    way: Sending
    scored: Scored
    takes_lists: bool

    def in_batches(self, rows: Iterator[RecordedRow]) -> Iterator[int]:
        while batch := list(islice(rows, self.way.batch)):
            first, last = batch[0].number, batch[-1].number + 1
            answers = surely(
                self.client.rounds,
                self.session,
                [self._input(row) for row in batch],
                [row.y for row in batch],
                id=f"{batch[-1].id}-{first}",
            )
            self._check_round(answers, last)
            for i, row in enumerate(batch):
                # The answer to a retry has no forecasts if they were many.
                answer = {name: answers[f"{name}s"][i] for name in ("value", "label") if f"{name}s" in answers}
                self._score(row, answer)
            yield last

    def one_by_one(self, rows: Iterator[RecordedRow], done: int) -> Iterator[int]:
        """Predict and write each row, and report its truth when `delay` more were predicted.

        A run after a kill finds the waiting predictions under the ids of their rows. A row is written before its truth is
        reported, so every learned row is in the file.
        """
        waiting: deque[RecordedRow] = deque()
        with nullcontext() if self.way.out is None else PredictionsFile(self.way.out) as out:
            if out is not None:
                self._check(out, done)
                if out.next_row < done and done > self.way.warmup:
                    first = max(out.next_row, self.way.warmup)
                    detail = f"rows {first:,} to {done - 1:,} were learned before, and are not in it"
                    self.console.print(f"{out.path}: {detail}", highlight=False, markup=False)
            for row in rows:
                oldest = waiting.popleft() if len(waiting) > self.way.delay else None
                answer = self._ask(oldest, row)
                if oldest is not None:
                    yield oldest.number + 1
                if answer is None:
                    continue
                self._score(row, answer)
                if out is not None and row.number >= self.way.warmup:
                    out.write(row.number, row.y, answer)
                waiting.append(row)
            for row in waiting:
                learned = surely(self.client.update, self.session, row.y, id=row.id, x=self._input(row))
                self._check_round(learned, row.number + 1)
                yield row.number + 1

    def _ask(self, due: RecordedRow | None, row: RecordedRow) -> Json | None:
        """Report the due truth and predict this row; None if its round was learned already."""
        x = self._input(row)
        if due is None:
            try:
                return surely(self.client.predict, self.session, x, id=row.id)
            except IdConflict:
                return None
        asked = {"id": due.id, "x": self._input(due), "next_x": x, "next_id": row.id}
        answer = surely(self.client.step, self.session, due.y, **asked)
        if "refused" not in answer:
            self._check_round(answer["update"], due.number + 1)
            return answer["predict"]
        if answer["refused"]["type"].endswith(f"/{IdConflict.slug}"):
            return None
        raise ServiceError(answer["refused"]["detail"])

    def _check_round(self, answer: Json, due: int) -> None:
        """Raises ServiceError if the rows up to `due` are not the session's rounds, as the store has lost some of them."""
        if self.way.start is None and not answer["duplicate"] and answer["t"] != due:
            raise ServiceError(
                f"Session {self.session!r} is at round {answer['t']:,} after row {due - 1:,}: its store has lost rounds, or "
                "another stream feeds it. Roll it back to the last good checkpoint, or replay from `--start`."
            )

    def _check(self, out: PredictionsFile, done: int) -> None:
        """Raises ConfigurationError for predictions of other rows than this replay's."""
        if self.way.start is None and out.next_row > done + self.way.delay + 1:
            raise ConfigurationError(
                f"{out.path} ends with row {out.next_row - 1:,}, but session {self.session!r} has learned {done:,} rows: "
                "they are not of one replay; name another file."
            )

    def _score(self, row: RecordedRow, answer: Json) -> None:
        if row.number >= self.way.warmup:
            self.scored.add(row.y, answer)

    def _input(self, row: RecordedRow) -> Any:
        return list(row.x.values()) if self.takes_lists else row.x
