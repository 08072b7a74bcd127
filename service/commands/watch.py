"""A live view of a session in the terminal: its verdict, its errors beside the trivial forecaster's, its last rounds."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from okl.client import Client
from okl.errors import Overloaded, ServiceError, SessionNotFound, StoreTimeout, StoreUnavailable, Unreachable
from okl.measures import MISTAKE_RATE
from okl.values import Json

LAST: Final = 10
"""The number of rounds shown."""

EVERY_S: Final = 2.0
"""The polling interval if events are refused."""

POLLS: Final = 15
"""The number of polls before events are requested again."""

AGAIN_S: Final = 0.5
"""The pause before events that ended, or were cut off, are requested again."""

PATIENCE_S: Final = 30.0
"""How long to wait for a service that has stopped answering: it may be restarting."""

SPARKS: Final = 60
BARS: Final = "▁▂▃▄▅▆▇█"

LABEL: Final = 16
"""The widest prediction or truth, in characters."""


class SessionGone(ServiceError):
    """The session was deleted while it was watched."""

    title = "Session gone"


@dataclass(frozen=True, slots=True)
class Glance:
    """A view of the session at one moment: its description, its history, its last rounds, newest first; rounds per second,
    None if unknown."""

    session: Json
    history: Json
    rounds: Sequence[Json]
    rate: float | None

    @classmethod
    def at(cls, client: Client, name: str, rate: float | None = None) -> Glance:
        return cls(client.inspect(name), client.history(name), client.last_rounds(name, LAST), rate)

    @property
    def is_classifier(self) -> bool:
        return self.history["error_name"] == MISTAKE_RATE

    def last(self, column: str) -> float | None:
        """The last value of a column of the history."""
        points = self.history["points"]
        return points[column][-1] if points else None

    @property
    def verdict(self) -> str:
        verdict, frozen = self.session["verdict"], self.session["frozen"]
        if verdict is None and frozen is not None:
            return f"frozen at round {frozen['t']:,} of {frozen['session']}: it predicts, and learns nothing"
        return "no rounds yet" if verdict is None else verdict["text"]

    @property
    def errors(self) -> str:
        """The errors of the last rounds, of all rounds, and of the trivial forecaster."""
        if not self.history["points"]:
            return ""
        window, total, rival = (self._error(f"{name}_error") for name in ("window", "total", "window_rival"))
        rounds = int(self.last("window") or 0)
        text = f"{self.history['error_name']} {window} of the last {rounds:,} rounds, {total} of all"
        return f"{text}; {self.history['rival']}: {rival} of the last"

    def _error(self, column: str) -> str:
        error = self.last(column)
        return "?" if error is None else f"{error:.1%}" if self.is_classifier else f"{error:.4g}"

    @property
    def state(self) -> str:
        rate = "" if self.rate is None else f"{self.rate:,.1f} rounds/s, "
        waiting, never = self.session["waiting"], self.session["never_came"]
        return f"{rate}{waiting:,} waiting, {never:,} never came, {self.session['bytes'] / 1024:,.0f} KiB"

    @property
    def alarm(self) -> str:
        alarms = self.session["alarms"]
        return f"alarm at round {alarms[-1]['t']:,}: {alarms[-1]['text']}" if alarms else ""


def watch(client: Client, console: Console, name: str, *, once: bool) -> None:
    """Show the session, once or for ever. Raises ServiceError; SessionGone if the session was deleted."""
    if once:
        console.print(frame(_now(client, name)))
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            for look in looks(client, name):
                live.update(frame(look), refresh=True)
    else:
        shown = ""
        for look in looks(client, name):
            if (text := line(look)) != shown:
                shown = text
                console.print(Text(text), soft_wrap=True)


def _now(client: Client, name: str) -> Glance:
    """The current view, with the rate of the first event if events are available."""
    rate = None
    with suppress(Overloaded), closing(client.events(name)) as events:
        rate = next((event["rate"] for _, event in events), None)
    return Glance.at(client, name, rate)


def looks(client: Client, name: str) -> Iterator[Glance]:
    """Yield a view whenever the session has changed. Raises SessionGone, and Unreachable when the patience is over."""
    last_id: str | None = None
    give_up, polls = math.inf, 0
    yield Glance.at(client, name)
    while True:
        try:
            if polls:
                polls -= 1
                time.sleep(EVERY_S)
                yield Glance.at(client, name)
                give_up = math.inf
                continue
            for id, event in client.events(name, last_id):
                give_up, last_id = math.inf, id
                yield Glance.at(client, name, event["rate"])
            # The events ended: the session was deleted, or the worker is stopping.
            client.inspect(name)
        except Overloaded:
            polls = POLLS
        except SessionNotFound:
            raise SessionGone(f"{name} was deleted.") from None
        except (Unreachable, StoreUnavailable, StoreTimeout):
            give_up = min(give_up, time.monotonic() + PATIENCE_S)
            if time.monotonic() >= give_up:
                raise
        time.sleep(AGAIN_S)


def line(look: Glance) -> str:
    """A view as one line."""
    parts = (f"t {look.session['t']:,}", look.verdict, look.errors, look.state, look.alarm)
    return " · ".join(part for part in parts if part)


def frame(look: Glance) -> RenderableType:
    """A view as a page in the terminal."""
    session, points = look.session, look.history["points"]
    title = Text(f"{session['name']}  ", style="bold").append(f"{session['kind']}, {session['t']:,} rounds", "dim")
    parts: list[RenderableType] = [title, Text(look.verdict, style="bold"), Text(look.errors)]
    if points:
        errors, rival = points["window_error"], points["window_rival_error"]
        highest = max((error for error in (*errors, *rival) if error is not None), default=0.0)
        parts.append(Text(f"{'this session':<16}").append(sparks(errors, highest), "green"))
        parts.append(Text(f"{look.history['rival']:<16}").append(sparks(rival, highest), "yellow"))
    parts.append(Text(look.state))
    if look.alarm:
        parts.append(Text(look.alarm, style="bold red"))
    if look.rounds:
        parts.append(_table(look.rounds))
    return Group(*parts)


def sparks(errors: Sequence[float | None], highest: float) -> str:
    """At most SPARKS errors, evenly sampled, as bars from 0 to `highest`; a blank for a missing one.

    Examples
    --------
    >>> sparks([0.0, 0.5, None, 1.0], 1.0)
    '▁▅ █'
    """
    if len(errors) > SPARKS:
        errors = [errors[i * (len(errors) - 1) // (SPARKS - 1)] for i in range(SPARKS)]
    top = len(BARS) - 1
    return "".join(
        " " if error is None else BARS[0 if highest <= 0.0 else min(top, round(error / highest * top + 1e-9))]
        for error in errors
    )


def _table(rounds: Sequence[Json]) -> Table:
    """The last rounds. The input gets the remaining width, so it is truncated in a narrow terminal."""
    table = Table(box=None, padding=(0, 2, 0, 0), expand=True)
    table.add_column("round", justify="right", no_wrap=True)
    table.add_column("predicted", no_wrap=True, max_width=LABEL)
    table.add_column("truth", no_wrap=True, max_width=LABEL)
    table.add_column("loss", justify="right", no_wrap=True)
    table.add_column("waited", justify="right", no_wrap=True)
    table.add_column("input", no_wrap=True, ratio=1)
    for one in rounds:
        predicted = one["label"] if one["value"] is None else f"{one['value']:.4g}"
        waited = "" if one["waited_s"] is None else f"{one['waited_s']:.1f} s"
        loss = "" if one["loss"] is None else f"{one['loss']:.3g}"
        truth = f"{one['y']:.4g}" if one["value"] is not None and one["y"] is not None else str(one["y"])
        cells = (f"{one['t']:,}", "" if predicted is None else str(predicted), truth, loss, waited, _input(one["x"]))
        table.add_row(*(Text(_short(cell)) for cell in cells), style="red" if one["mistake"] else None)
    return table


def _input(x: Any) -> str:
    named = x.items() if isinstance(x, dict) else enumerate(x)
    return ", ".join(f"{name}: {_value(value)}" for (name, value), _ in zip(named, range(4), strict=False))


def _value(value: object) -> str:
    """A value as in JSON; a string without quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(cell: str) -> str:
    """A cell on one line, without control characters."""
    plain = "".join(letter if letter.isprintable() else "·" for letter in cell[:60])
    return plain if len(cell) <= 60 else f"{plain}…"
