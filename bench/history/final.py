"""What the store holds at the end, read without the service's processes, and what each worker says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.history.inputs import input_of, learned
from bench.history.raw_http import Connection
from service.session.record import decode_record
from service.session.session import Session
from service.session.snapshot import unpack
from service.session.turn import Position
from service.store.base import Gone, Reading
from service.store.opening import open_store

PROBES = tuple(range(2_000_000, 2_000_008))
"""Serials of inputs that no round has: where the final forecasts are compared."""


@dataclass(slots=True)
class View:
    """What one worker says of a session; `problem` if it says anything else than 200."""

    worker: int
    t: int = -1
    etag: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    values: Sequence[float] = ()
    problem: str = ""


@dataclass(slots=True)
class FinalState:
    """A session at the end: `serials` are the rounds that its learner has learned, in order, `t` their number by the head.

    `values` are the learner's forecasts for the probes, `loss` and `rounds` those of its scorecard. `problem` says why it
    cannot be read.
    """

    session: str
    serials: Sequence[int] = ()
    t: int = -1
    etag: str = ""
    rounds: int = -1
    loss: float = 0.0
    values: Sequence[float] = ()
    views: Sequence[View] = ()
    problem: str = ""


def read_all(url: str, names: Sequence[str]) -> Mapping[str, Reading]:
    """Those of the sessions that the store has."""
    return asyncio.run(_read_all(url, names))


async def _read_all(url: str, names: Sequence[str]) -> Mapping[str, Reading]:
    store = open_store(url)
    await store.open()
    try:
        found = {name: await store.read(name) for name in names}
    finally:
        await store.close()
    return {name: reading for name, reading in found.items() if not isinstance(reading, Gone)}


def replayed(reading: Reading) -> Session:
    """The snapshot, and the journal after it, one entry after the other. Raises StateCorrupt."""
    definition, identity = decode_record(reading.head.name, reading.record or b"")
    blob = reading.snapshot
    position = str(Position(identity, reading.start))
    session = Session(definition) if blob is None else unpack(definition, blob, position)
    for entry in reading.entries:
        session.replay(entry.blob)
    return session


def rounds_of(session: Session) -> Sequence[int]:
    return () if session.learner is None else learned(session.learner.state())


def chains(url: str, names: Sequence[str]) -> Mapping[str, Sequence[int]]:
    """The rounds that each of the sessions has learned, in order."""
    return {name: rounds_of(replayed(reading)) for name, reading in read_all(url, names).items()}


def final_states(url: str, names: Sequence[str], connections: Sequence[Connection]) -> Mapping[str, FinalState]:
    """Ask every worker, then read the store. Nobody writes any more."""
    views = {name: [_view(i, name, one) for i, one in enumerate(connections)] for name in names}
    readings = read_all(url, names)
    return {name: _final(name, readings.get(name), views[name]) for name in names}


def _view(worker: int, name: str, connection: Connection) -> View:
    told = connection.request("GET", f"/sessions/{name}")
    if told.status != 200:
        return View(worker, problem=f"{told.status} {told.problem}")
    values: list[float] = []
    for serial in PROBES:
        answer = connection.request("POST", f"/sessions/{name}/predict", {"x": input_of(serial), "wait": False})
        if answer.status != 200:
            return View(worker, problem=f"{answer.status} {answer.problem}")
        values.append(answer.body["value"])
    return View(worker, told.body["t"], told.body["etag"], told.body["metrics"], values)


def _final(name: str, reading: Reading | None, views: Sequence[View]) -> FinalState:
    if reading is None:
        return FinalState(name, views=views, problem="the store has no such session")
    try:
        session = replayed(reading)
    except Exception as error:
        return FinalState(name, views=views, problem=f"{type(error).__name__}: {error}")
    tip = reading.head.tip
    return FinalState(
        name,
        rounds_of(session),
        tip.round,
        f'"{tip.round}-{tip.digest.hex()}"',
        session.card.rounds,
        session.card.loss,
        [session.forecast(np.array(input_of(serial))).value for serial in PROBES],
        views,
    )
