"""Feed a CSV file to a session, in order and from where it stopped."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from okl_core import parse_spec
from okl_core.errors import OklError, did_you_mean, quoted
from okl_core.types import MAX_CLASSES
from service.client import OklClient
from service.errors import ConfigurationError, SessionNotFound

MAX_CATEGORIES = 100
"""A text column with more different values is no category."""

_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Recording:
    """A CSV file read whole: `rows` hold one object of features each, `truths` the label column."""

    schema: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    truths: list[Any]
    digest: str


def read_csv(path: Path, label: str) -> Recording:
    """Columns of numbers stay numbers, true/false become booleans, other text a category.

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
    for number, line in enumerate(lines, start=2):
        if None in line or None in line.values():
            raise ConfigurationError(f"{path}, line {number}: another number of values than the header has.")
    if len(names) == 1:
        raise ConfigurationError(f"{path} has no column beside {label!r}.")
    columns = {name: _column([line[name] for line in lines], f"{path}, column {name!r}") for name in names}
    _, truths, _ = columns.pop(label)
    schema = [{"name": name, "type": kind} | extra for name, (kind, _, extra) in columns.items()]
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*(c[1] for c in columns.values()), strict=True)]
    return Recording(schema, rows, truths, hashlib.blake2b(content, digest_size=6).hexdigest())


def _column(texts: list[str], where: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Type, values and further parts of the schema of one column."""
    if all(text.strip().lower() in _BOOLEANS for text in texts):
        return "boolean", [_BOOLEANS[text.strip().lower()] for text in texts], {}
    if not all(text.strip() for text in texts):
        raise ConfigurationError(f"{where}: has empty cells; fill them in, or leave the column out.")
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        categories = sorted(set(texts))
    else:
        if not all(map(math.isfinite, numbers)):
            raise ConfigurationError(f"{where}: a number is not finite.")
        return "number", numbers, {}
    if len(categories) > MAX_CATEGORIES:
        raise ConfigurationError(f"{where}: neither numbers nor a category ({len(categories)} different texts).")
    return "category", list(texts), {"categories": categories}


def create_session(client: OklClient, session: str, learner: dict[str, Any], recording: Recording) -> None:
    """A session that fits the file: its columns, its labels or the range of its truths, scaled by a warm-up."""
    targets = {entry["kind"]: entry["target"] for entry in client.learners()}
    kind = str(learner.get("kind"))
    if kind not in targets:
        raise ConfigurationError(f"There is no learner {quoted(kind)}{did_you_mean(kind, sorted(targets))}.")
    target = targets[kind]
    # The catalogue tells the target of the defaults; a config may ask for another. What is wrong with it the service says.
    with contextlib.suppress(OklError):
        _, algorithm, config = parse_spec(learner)
        target = algorithm.target(config)
    values = sorted(set(recording.truths))
    settings: dict[str, Any] = {"schema": recording.schema, "scale": {"kind": "warmup"}}
    if len(values) == 2 or (target == "class" and 2 < len(values) <= MAX_CLASSES):
        settings["labels"] = values
    elif target == "binary":
        raise ConfigurationError(
            f"{learner['kind']} takes two labels; the label column has {len(values)} values (one-vs-rest takes more)."
        )
    elif target == "class":
        raise ConfigurationError(
            f"{learner['kind']} takes 2 to {MAX_CLASSES} labels; the label column has {len(values)} values."
        )
    elif len(values) < 2 or isinstance(values[0], str):
        raise ConfigurationError("The label column is to have two different values, or numbers.")
    else:
        settings["y_range"] = [values[0], values[-1]]
    client.create(session, learner, **settings)


def feed(
    client: OklClient,
    console: Console,
    path: Path,
    *,
    session: str,
    label: str,
    learner: dict[str, Any],
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
    rows = recording.rows if found["features"] else [[float(v) for v in row.values()] for row in recording.rows]
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
