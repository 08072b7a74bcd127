"""Shared parts of the demonstrations: running a service, resuming sessions, importing in advance."""

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
"""Called with the processes, the service's process, and the service's url."""


def import_all() -> None:
    """Import what the first client and the first output would import, as an interrupt during an import may be lost."""
    "localhost".encode("idna")
    Client("http://localhost").close()
    magic()
    console = Console(file=io.StringIO(), width=100)
    with Progress(console=console) as progress:
        progress.add_task(":…")


def run_story(settings: Settings, console: Console, story: Story, *, workers: int, stop: bool) -> None:
    """Start the service, print its url, run the story; keep serving unless `stop`.

    Raises KeyboardInterrupt if Ctrl-C or SIGTERM comes before the story ends.
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
    """The session as `inspect` describes it; it is created if it does not exist."""
    try:
        return client.inspect(name)
    except SessionNotFound:
        return client.create(name, **settings)


def asked(found: Mapping[str, Any]) -> int:
    """The number of waiting predictions that the session has ever made."""
    return found["t"] + found["waiting"] + found["never_came"]


def verdict_of(found: Mapping[str, Any]) -> str:
    return found["verdict"]["text"] if found["verdict"] else ""
