"""`okl demo flights`: truths that come hours late, or never; with --chaos a worker is killed, also in the usual way."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from okl.client import Client

from ..settings import Settings
from .common import asked, found_or_created, run_story, verdict_of
from .crew import LATE, SESSIONS, Account, Crew, learned_by_usual
from .flights_data import Event, Flight, data_folder, events, flights
from .processes import Process, Processes, free_port, wait_until, wait_until_ready, worker_pids
from .tally import UpdateTally, tally, tally_of_rounds

FLIGHTS = 1_500
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    name: {"labels": ["on time", "late"]} if name == LATE else {} for name in SESSIONS
}


@dataclass(frozen=True, slots=True)
class WayLine:
    """A line of the table."""

    name: str
    account: Account
    tally: UpdateTally
    never_came: int | None


def run(settings: Settings, console: Console, *, rounds: int | None, stop: bool, is_chaos: bool) -> None:
    data_folder()

    def story(running: Processes, server: Process, url: str) -> None:
        Story(console, running, is_chaos).tell(server, url, rounds or FLIGHTS)

    run_story(settings, console, story, workers=2 if is_chaos else 1, stop=stop)


@dataclass(frozen=True, slots=True)
class Story:
    console: Console
    running: Processes
    is_chaos: bool

    def tell(self, server: Process, url: str, count: int) -> None:
        with Client(url) as client:
            before = {name: found_or_created(client, name, SETTINGS[name]) for name in SESSIONS}
            found = flights(max(map(asked, before.values())), count)
            if not found:
                self.say("All flights of the year have been played; name another store with --store.")
                return
            played = events(found)
            self._introduce(found)
            account = self._play("okl", url, server, played, is_waited=True)
            after = {name: client.inspect(name) for name in SESSIONS}
            tallies = [tally_of_rounds(account.rounds[name], before[name]["t"], after[name]["t"]) for name in SESSIONS]
            for name in SESSIONS:
                for flight in found:
                    if flight.lands is None:
                        client.cancel(name, f"flight-{flight.number}")
            after = {name: client.inspect(name) for name in SESSIONS}
            lines = [WayLine("okl", account, _sum(tallies), sum(one["never_came"] for one in after.values()))]
            if self.is_chaos:
                lines += self._usual_way(played)
            self.console.print(_table(lines))
            for name in SESSIONS:
                self.say(f"[bold]{name}[/]: {verdict_of(after[name])}")
            ours = lines[0].tally
            equal = "=" if ours.acknowledged == ours.learned else "≠"
            self.say(f"\nokl: acknowledged {equal} learned: [bold]{ours}[/].")
            for line in lines[1:]:
                self.say(f"{line.name}: [bold]{line.tally}[/].")

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False)

    def _introduce(self, found: Sequence[Flight]) -> None:
        never = sum(flight.lands is None for flight in found)
        self.say(
            f"{len(found):,} flights leave New York. At its scheduled departure each is asked about: will it arrive late"
            " ([bold]flights-late[/]), and by how many minutes ([bold]flights-delay[/])? The truth comes when it lands, hours"
            f" and hundreds of predictions later. {never} never land: their truth never comes."
        )
        if self.is_chaos:
            self.say(
                "Two workers serve one port, every update is sent twice, and in the middle a worker is killed (SIGKILL)."
            )
        self.say("")

    def _play(self, name: str, url: str, server: Process, played: Sequence[Event], *, is_waited: bool) -> Account:
        crew = Crew(url, played, times=2 if self.is_chaos else 1, is_waited=is_waited)
        killed: list[int] = []
        progress = Progress(
            TextColumn("{task.description:<20}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[progress]}"),
            console=self.console,
        )
        with progress:
            task = progress.add_task(name, total=len(played), progress="")

            def look(account: Account) -> None:
                progress.update(task, completed=account.done, progress=f"{account.acknowledged:,} acknowledged")
                if self.is_chaos and not killed and account.done > len(played) // 2:
                    killed.extend(worker_pids(server.pid)[:1])
                    os.kill(killed[0], signal.SIGKILL)
                    progress.console.print(f"{name}: worker {killed[0]} killed", highlight=False)

            crew.play(look)
            look(crew.account)
        if killed:
            wait_until("Another worker", server, lambda: len(set(worker_pids(server.pid)) - set(killed)) == 2)
            new = worker_pids(server.pid)[-1]
            self.say(
                f"{name}: worker {new} has taken its place; {crew.account.cut} requests were cut and sent again.\n"
            )
        return crew.account

    # -- the usual way ------------------------------------------------------------------------------------------------

    def _usual_way(self, played: Sequence[Event]) -> Iterator[WayLine]:
        if importlib.util.find_spec("river") is None:
            self.say("River is not installed, so the usual way is left out (pip install river).\n")
            return
        with self._usual_store() as (store, kept):
            name = f"FastAPI + River, pickled to {kept}"
            port = free_port()
            command = [sys.executable, "-m", "uvicorn", f"{__package__}.usual_way:app", "--workers", "2"]
            options = ["--port", str(port), "--log-level", "critical"]
            server = self.running.start([*command, *options], {"USUAL_STORE": store}, is_quiet=True)
            wait_until_ready("The usual way", server, f"http://127.0.0.1:{port}")
            url = f"http://127.0.0.1:{port}/pickled"
            account = self._play("the usual way", url, server, played, is_waited=False)
            with Client(url) as client:
                tallies = [tally(account.rounds[name], learned_by_usual(client, name)) for name in SESSIONS]
            yield WayLine(name, account, _sum(tallies), None)

    @contextmanager
    def _usual_store(self) -> Iterator[tuple[str, str]]:
        """The usual way's store and its name: a separate Redis server if it is installed, else files."""
        with tempfile.TemporaryDirectory() as folder:
            redis = shutil.which("redis-server")
            if redis is None:
                self.say("There is no redis-server on PATH, so the usual way keeps its models in files.\n")
                yield folder, "a file"
                return
            port = free_port()
            server = self.running.start(
                [redis, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""], {}, is_quiet=True
            )
            wait_until("Redis", server, lambda: _answers(port))
            yield f"redis://127.0.0.1:{port}/0", "Redis"


def _answers(port: int) -> bool:
    import redis

    try:
        with redis.Redis("127.0.0.1", port) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def _sum(tallies: Sequence[UpdateTally]) -> UpdateTally:
    return UpdateTally(*map(sum, zip(*tallies, strict=True)))


def _table(lines: Sequence[WayLine]) -> Table:
    """A table with one line per way, both sessions together."""
    shown = Table(title="Updates", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("")
    for heading in ("acknowledged", "learned", "lost", "doubled", "repeats seen", "never came", "mistakes (late)"):
        shown.add_column(heading, justify="right")
    for line in lines:
        landed = len(line.account.rounds[LATE])
        shown.add_row(
            line.name,
            *(f"{number:,}" for number in line.tally),
            "-" if line.never_came is None else f"{line.account.duplicates:,}",
            "-" if line.never_came is None else f"{line.never_came:,}",
            f"{line.account.mistakes / max(1, landed):.1%}",
        )
    return shown
