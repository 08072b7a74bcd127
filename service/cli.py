"""The command line: okl serve, demo, replay, sessions."""

from __future__ import annotations

import json
import os
import signal
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
import uvicorn
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from service import __version__, demo
from service.client import DEFAULT_URL, OklClient
from service.errors import ConfigurationError, ServiceError
from service.http_protocol import HttpProtocol
from service.replay import replay as replay_file
from service.settings import Settings
from service.store.base import open_store

app = typer.Typer(help="Online kernel learning as a service.", no_args_is_help=True, add_completion=False)
console = Console(width=None if sys.stdout.isatty() else 100)

Url = Annotated[str, typer.Option(help="Where the service is.", envvar="OKL_URL")]
StoreOption = Annotated[str | None, typer.Option(help="Store url; default: OKL_STORE, or an embedded file.")]
PortOption = Annotated[int | None, typer.Option(help="Port to listen on.")]
HostOption = Annotated[str | None, typer.Option(help="Address to listen on.")]


@contextmanager
def _told() -> Iterator[None]:
    """Errors on purpose as one line, not as a traceback."""
    try:
        yield
    except ServiceError as error:
        console.print(f"[red]{error.title}[/]: {escape(error.detail)}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    except tomllib.TOMLDecodeError as error:
        console.print(f"[red]The configuration file is not TOML[/]: {error}", highlight=False)
        raise typer.Exit(2) from None
    except ValidationError as error:
        for item in error.errors():
            where = ".".join(map(str, item["loc"]))
            console.print(f"[red]Setting {escape(where)}[/]: {escape(item['msg'])}", highlight=False)
        raise typer.Exit(2) from None


def _settings(**options: Any) -> Settings:
    return Settings(**{name: value for name, value in options.items() if value is not None})


@app.command()
def serve(
    host: HostOption = None,
    port: PortOption = None,
    store: StoreOption = None,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
) -> None:
    """Serve sessions over HTTP."""
    with _told():
        settings = _settings(host=host, port=port, store=store)
        open_store(settings.store)
        if workers > 1 and settings.store.startswith("sqlite:") and not urlsplit(settings.store).path:
            raise ConfigurationError("a store in memory is one worker's own; name a file: sqlite:///okl.sqlite3")
        # uvicorn raises the signal that stopped it again when all is answered: a stop on request is a success.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        # Workers are processes of their own and read the environment.
        os.environ |= {"OKL_HOST": settings.host, "OKL_PORT": str(settings.port), "OKL_STORE": settings.store}
        uvicorn.run(
            "service.app:create_app",
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=workers,
            http=HttpProtocol,
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=settings.shutdown_grace_s,
        )


@app.command("demo")
def run_demo(
    exit: Annotated[bool, typer.Option("--exit", help="Stop when the table is printed.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each session, at most.")] = None,
    host: HostOption = None,
    port: PortOption = None,
    store: StoreOption = None,
) -> None:
    """Stream a real data set through several learners, one row at a time; then keep serving."""
    with _told():
        demo.run(_settings(host=host, port=port, store=store), console, rounds=rounds, stop=exit)


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="CSV file with a header line.")],
    session: Annotated[str, typer.Option(help="The session; created to fit the file if it is not there.")],
    label: Annotated[str, typer.Option(help="The column of the truth.")],
    learner: Annotated[
        str, typer.Option(help="Learner of a new session: a kind, or a spec as JSON.")
    ] = '{"kind": "pomdr", "config": {"kernel": {"kind": "gaussian", "sigma": "median"}}}',
    batch: Annotated[int, typer.Option(min=1, help="Rounds in one request.")] = 100,
    start: Annotated[int | None, typer.Option(min=0, help="First row to send; default: the session's t.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Feed a CSV file to a session, row by row in order; run again, it goes on where it stopped."""
    try:
        spec = json.loads(learner) if learner.lstrip().startswith("{") else {"kind": learner}
    except ValueError as error:
        raise typer.BadParameter(f"not JSON: {error}", param_hint="--learner") from None
    with _told(), OklClient(url) as client:
        found = replay_file(client, console, file, session=session, label=label, learner=spec, batch=batch, start=start)
        _print_metrics(found)


@app.command()
def sessions(
    name: Annotated[str | None, typer.Argument(help="One session; without it all are listed.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the session.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """List sessions, inspect one, or delete it."""
    with _told(), OklClient(url) as client:
        if name is None:
            console.print(_listing(client.sessions()))
        elif delete:
            client.delete(name)
            console.print(f"{name}: deleted", highlight=False)
        else:
            console.print_json(json.dumps(client.inspect(name)))


@app.command()
def version() -> None:
    """Print the version."""
    console.print(__version__, highlight=False)


def _listing(found: list[dict[str, Any]]) -> Table:
    table = Table()
    for heading in ("session", "learner", "rounds", "waiting"):
        table.add_column(heading, justify="right" if heading in ("rounds", "waiting") else "left")
    for entry in found:
        table.add_row(entry["name"], entry["kind"], f"{entry['t']:,}", f"{entry['waiting']:,}")
    return table


def _print_metrics(found: dict[str, Any]) -> None:
    metrics = found["metrics"]
    how = f"mistake rate {metrics['mistake_rate']:.2%}" if "mistake_rate" in metrics else f"RMSE {metrics['rmse']:.6g}"
    console.print(f"{found['name']}: {metrics['rounds']:,} rounds, {how}", highlight=False)


if __name__ == "__main__":
    app()
