"""Feed a CSV file to a session, in order and from where it stopped."""

from __future__ import annotations

import csv
import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from okl_core.records.texts import number_in
from okl_core.types import MAX_CLASSES
from service.client import OklClient
from service.errors import ConfigurationError, SessionNotFound

_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Recording:
    """A CSV file read whole: `rows` hold one object of values each, `truths` the label column."""

    rows: list[dict[str, Any]]
    truths: list[Any]
    digest: str


def read_csv(path: Path, label: str) -> Recording:
    """Cells as a session takes them: numbers, booleans and other text; null for an empty one.

    Raises ConfigurationError for a file that cannot be a stream.
    """
    content = path.read_bytes()
    try:
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        lines = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"{path} is no CSV file in UTF-8: {error}.") from error
    if not lines:
        raise ConfigurationError(f"{path} has no rows below its header.")
    names = list(reader.fieldnames or ())
    if len(set(names)) != len(names) or "" in names:
        raise ConfigurationError(f"{path}: every column needs a name of its own; it has {', '.join(names)}.")
    if label not in names:
        raise ConfigurationError(f"{path} has no column {label!r}; it has {', '.join(names)}.")
    if len(names) == 1:
        raise ConfigurationError(f"{path} has no column beside {label!r}.")
    rows, truths = [], []
    for number, line in enumerate(lines, start=2):
        if None in line or None in line.values():
            raise ConfigurationError(f"{path}, line {number}: another number of values than the header has.")
        row = {name: _cell(text) for name, text in line.items()}
        truth = row.pop(label)
        if truth is None:
            raise ConfigurationError(f"{path}, line {number}: the label column is empty.")
        rows.append(row)
        truths.append(truth)
    return Recording(rows, truths, hashlib.blake2b(content, digest_size=6).hexdigest())


def _cell(text: str) -> float | bool | str | None:
    text = text.strip()
    if text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    number = number_in(text)
    return text or None if number is None else number


def create_session(client: OklClient, session: str, learner: dict[str, Any] | str | None, recording: Recording) -> None:
    """A session that fits the file: its labels, or the range of its truths."""
    values = set(recording.truths)
    if len(values) < 2:
        raise ConfigurationError("The label column is to have two different values at least.")
    kind = learner if isinstance(learner, str) else str((learner or {}).get("kind", "auto"))
    are_labels = len(values) == 2 or any(isinstance(value, bool | str) for value in values)
    if learner is not None and kind != "auto":
        targets = {entry["kind"]: entry["target"] for entry in client.learners()}
        are_labels |= targets.get(kind) == "class"
    settings: dict[str, Any] = {}
    if are_labels:
        if len(values) > MAX_CLASSES:
            raise ConfigurationError(f"The label column has {len(values)} values; labels are {MAX_CLASSES} at most.")
        settings["labels"] = sorted(values, key=lambda value: (str(type(value)), value))
    elif learner is not None:
        settings["y_range"] = [min(values), max(values)]
    client.create(session, learner, **settings)


def feed(
    client: OklClient,
    console: Console,
    path: Path,
    *,
    session: str,
    label: str,
    learner: dict[str, Any] | str | None,
    batch: int,
    start: int | None,
) -> dict[str, Any]:
    """Send the rows that the session has not seen; returns what the service says of the session at the end.

    A row is a round, so the session's t is the row to go on from; `start` says otherwise for a session that other
    streams feed too. Every request has an id made of the file and its first row: sent again, it is not learned twice.
    """
    recording = read_csv(path, label)
    try:
        found = client.inspect(session)
    except SessionNotFound:
        create_session(client, session, learner, recording)
        found = client.inspect(session)
    takes_lists = found["settings"]["dim"] is not None
    rows = [list(row.values()) for row in recording.rows] if takes_lists else recording.rows
    done = found["t"] if start is None else start
    progress = Progress(TextColumn(session), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console)
    with progress:
        task = progress.add_task(session, total=len(rows), completed=min(done, len(rows)))
        for first in range(done, len(rows), batch):
            last = min(first + batch, len(rows))
            client.rounds(
                session, rows[first:last], recording.truths[first:last], id=f"{recording.digest}-{first}-{last}"
            )
            progress.update(task, completed=last)
    return client.inspect(session)
