"""What the demonstrations share: a service that is shown and stopped, sessions that go on, what is imported beforehand."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.progress import Progress

from okl.client import Client
from okl.errors import ServiceError, SessionNotFound

from ..demo_data import magic
from ..settings import Settings
from .processes import Process, Processes, processes, start_service

Story = Callable[[Processes, Process, str], None]
"""Gets the processes, the service among them, and the url of the service."""


def import_all() -> None:
    """What the first client and the first output import on the way: an interrupt in the middle of an import may be lost."""
    "localhost".encode("idna")
    Client("http://localhost").close()
    magic()
    console = Console(file=io.StringIO(), width=100)
    with Progress(console=console) as progress:
        progress.add_task(":…")


def run_story(settings: Settings, console: Console, story: Story, *, workers: int, stop: bool) -> None:
    """Start the service, say where it is, tell the story; go on serving unless `stop`.

    Raises KeyboardInterrupt where Ctrl-C or SIGTERM comes before the story is told.
    """
    with processes() as running:
        server, url = start_service(running, settings, workers=workers)
        console.print(f"okl is at [bold]{url}[/]: open it, and watch.\n", highlight=False)
        story(running, server, url)
        if stop:
            return
        console.print(f"\nServing at [bold]{url}[/]; the API is at [bold]{url}/docs[/]. Ctrl-C stops.", highlight=False)
        try:
            code = server.wait()
        except KeyboardInterrupt:
            return
        raise ServiceError(f"The service stopped by itself (exit code {code}).")


def found_or_created(client: Client, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What `inspect` says of the session; it is created if it is not there."""
    try:
        return client.inspect(name)
    except SessionNotFound:
        return client.create(name, **settings)


def asked(found: Mapping[str, Any]) -> int:
    """How many predictions a session has been asked for that were to wait for their truth."""
    return found["t"] + found["waiting"] + found["never_came"]


def verdict_of(found: Mapping[str, Any]) -> str:
    return found["verdict"]["text"] if found["verdict"] else ""
