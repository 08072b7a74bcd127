"""The command line: okl serve, keys, demo, replay, compare, watch, consume, sessions, repair, export, import, move, archive,
backtest, version.

Exit codes: 0 done, 1 refused or failed, 2 invalid setting or option, 75 (try again later) the store does not answer,
130 interrupted, 141 nobody reads the output any more. An error is one line on standard error.
"""

# Not `from __future__ import annotations`: typer would evaluate every annotation twice, at every start of any command.

# Imports that only one command needs, above all numpy and the learners, are deferred to it: the others start at once.
import json
import logging
import platform
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import typer

from okl.errors import ConfigurationError, StoreRefused, StoreTimeout, StoreUnavailable

from . import __version__
from .commands import moves
from .commands.address import service_url
from .commands.consume import consume
from .commands.keys_app import keys_app
from .commands.options import StoreOption, settings_with, store_url
from .commands.outcome import INTERRUPTED, REFUSED, errors_in_a_line, fail
from .commands.plain_group import PlainGroup
from .commands.stores import check_there, opened
from .commands.terminal import console
from .escaping import escaped

if TYPE_CHECKING:
    from rich.table import Table

    from okl.client import Client

    from .replica.repair import RepairReport
    from .settings import Settings

STORE_RETRY_S = 1.0

log = logging.getLogger("okl")
app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: the imports for formatted help take as long as all others together.
    rich_markup_mode=None,
    context_settings={"max_content_width": 120},
)
app.add_typer(keys_app, name="keys")

Url = Annotated[str | None, typer.Option(help="Url of the service; default: OKL_HOST and OKL_PORT.", envvar="OKL_URL")]
KeyOption = Annotated[
    str | None, typer.Option("--key", help="API key of the service.", envvar="OKL_KEY", show_envvar=True)
]
PortOption = Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
HostOption = Annotated[str | None, typer.Option(help="Address to listen on.")]
FileArgument = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="CSV file with a header line.")]
LabelOption = Annotated[str, typer.Option(help="Column with the truths.")]
DropOption = Annotated[str | None, typer.Option(help="Columns to leave out, separated by commas like the header.")]
OnlyOption = Annotated[str | None, typer.Option(help="The only columns to use, separated by commas like the header.")]
FillOption = Annotated[str, typer.Option(help="For an empty cell: a value, `previous` (the one above it), or `none`.")]
DelayOption = Annotated[int, typer.Option(min=0, help="Report each truth after this many more rows were predicted.")]


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Online kernel learning as a service."""


def _client(url: str | None, key: str | None) -> "Client":
    from okl.client import Client

    return Client(service_url(url), key=key)


@app.command()
def serve(
    host: HostOption = None,
    port: PortOption = None,
    store: StoreOption = None,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
) -> None:
    """Serve sessions over HTTP."""
    import asyncio

    from . import server
    from .logs import configure
    from .store.opening import open_store

    if workers == 1:
        # Import before signals are handled; with several workers, each imports it itself.
        import_module(".app", __package__)

    options = {"host": host, "port": port, "store": store}
    with errors_in_a_line():
        settings = settings_with(**options)
        if workers > 1 and settings.store.startswith("sqlite:") and not urlsplit(settings.store).path:
            raise ConfigurationError("Workers cannot share a store in memory; name a file: sqlite:///okl.sqlite3.")
        open_store(settings.store)
        configure(settings)
        asyncio.run(_wait_for_store(settings))
        _check_who_may_enter(settings)
        given = {f"OKL_{name.upper()}": str(value) for name, value in options.items() if value is not None}
        server.serve(settings, given, workers=workers)


def _check_who_may_enter(settings: "Settings") -> None:
    """Raises ConfigurationError if other machines can reach the service and access is not configured."""
    from .commands.keys import was_one_made
    from .keys.keyring import is_open_without_keys

    if settings.require_keys or is_open_without_keys(settings) or was_one_made(settings.store):
        return
    raise ConfigurationError(
        f"Others reach {settings.host}, and there is no API key: make one with `okl keys create NAME`, listen on 127.0.0.1, "
        "or let everybody in with OKL_ALLOW_ANONYMOUS=true."
    )


async def _wait_for_store(settings: "Settings") -> None:
    """Return when the store answers. Raises StoreUnavailable or StoreTimeout when the patience is over.

    A server may still be starting. A missing file or an invalid option will not change, so they fail at once.
    """
    import asyncio

    patience_s = 0.0 if settings.store.startswith("sqlite:") else settings.store_patience_s
    give_up = time.monotonic() + patience_s
    while True:
        try:
            async with opened(settings.store):
                return
        except StoreRefused as error:
            raise ConfigurationError(f"{error.detail} Set both in OKL_STORE.") from error
        except (StoreUnavailable, StoreTimeout) as error:
            if time.monotonic() >= give_up:
                waited = f" It was tried for {patience_s:g} s (OKL_STORE_PATIENCE_S)." if patience_s else ""
                advice = "Start it, or name another store with --store."
                raise type(error)(f"{error.detail}{waited} {advice}") from error
            log.warning("the store does not answer yet", extra={"detail": error.detail})
        await asyncio.sleep(STORE_RETRY_S)


@app.command("demo")
def run_demo(
    story: Annotated[Literal["magic", "flights"], typer.Argument(help="magic ships with okl; flights is an extra.")] = (
        "magic"
    ),
    chaos: Annotated[
        bool, typer.Option("--chaos", help="flights: two workers, updates sent twice, a worker killed.")
    ] = False,
    exit: Annotated[bool, typer.Option("--exit", help="Stop when the table is printed.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds to play in each session.")] = None,
    host: HostOption = None,
    port: PortOption = None,
    store: StoreOption = None,
) -> None:
    """Stream real data through several sessions, one row at a time; then keep serving."""
    from .demos import common, flights, magic

    common.import_all()
    with errors_in_a_line():
        settings = settings_with(host=host, port=port, store=store)
        if story == "flights":
            flights.run(settings, console(), rounds=rounds, stop=exit, is_chaos=chaos)
        elif chaos:
            raise ConfigurationError("The chaos is part of `okl demo flights --chaos`.")
        else:
            magic.run(settings, console(), rounds=rounds, stop=exit)


@app.command()
def replay(
    file: FileArgument,
    session: Annotated[str, typer.Option(help="The session; created to fit the file if it does not exist.")],
    label: LabelOption,
    learner: Annotated[
        str | None,
        typer.Option(
            help="Learner of a new session: a kind, or a spec as JSON; default: the service's choice. One of labels or "
            "numbers, such as `auto`, learns what the label column has, unless its config has `truth`."
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, help="Rounds per request; with --out or --delay each row is a request.")
    ] = 100,
    start: Annotated[int | None, typer.Option(min=0, help="First row to send; default: the session's t.")] = None,
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write the predictions to this CSV file, one line per row.")
    ] = None,
    drop: DropOption = None,
    only: OnlyOption = None,
    fill: FillOption = "none",
    warmup: Annotated[
        int, typer.Option(min=0, help="Number of first rows that are learned but neither written nor scored.")
    ] = 0,
    delay: DelayOption = 0,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Feed a CSV file to a session, row by row in order; run it again without --start to resume where it stopped."""
    from .commands.recording import Selection
    from .commands.replay import Sending
    from .commands.replay import replay as run

    try:
        spec = json.loads(learner) if learner is not None and learner.lstrip().startswith("{") else learner
    except ValueError as error:
        raise typer.BadParameter(f"not JSON: {error}", param_hint="--learner") from None
    with errors_in_a_line(), _client(url, key) as client:
        selection = Selection.of(label, drop=drop, only=only, fill=fill)
        way = Sending(batch, start, out, delay, warmup)
        found, scored = run(client, console(), file, session=session, selection=selection, learner=spec, way=way)
        if warmup:
            console().print(f"{session}: {found['t']:,} rounds; {scored.text(warmup)}", highlight=False, markup=False)
        else:
            _print_metrics(found)


@app.command()
def compare(
    file: FileArgument,
    label: LabelOption,
    learner: Annotated[
        list[str] | None,
        typer.Option(
            help="A kind, a spec as JSON, or a file of specs; repeatable. Default: a selection that fits the truths."
        ),
    ] = None,
    rows: Annotated[int | None, typer.Option(min=2, help="Play only this many rows of the file.")] = None,
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for compare.png, compare.svg and compare.html.")
    ] = Path(),
    drop: DropOption = None,
    only: OnlyOption = None,
    fill: FillOption = "none",
    delay: DelayOption = 0,
) -> None:
    """Play a CSV file through several learners side by side, in this process; Ctrl-C shows the results so far."""
    from .commands import compare as comparing
    from .commands.recording import Selection

    with errors_in_a_line():
        selection = Selection.of(label, drop=drop, only=only, fill=fill, rows=rows)
        compared = comparing.compare(console(), file, selection, learner or [], delay=delay)
        console().print(comparing.table_of(compared))
        comparing.print_refusals(console(), compared.contestants)
        if not compared.is_whole:
            raise typer.Exit(INTERRUPTED)
        if all(one.refusal is not None for one in compared.contestants):
            fail("All learners failed, so nothing is saved.", REFUSED)
        if comparing.has_figure():
            from .commands.compare_page import save

            for path in save(compared, out):
                console().print(str(path), highlight=False, markup=False, soft_wrap=True)
        else:
            typer.echo(comparing.NO_FIGURE, err=True)


@app.command()
def watch(
    session: Annotated[str, typer.Argument(help="The session.")],
    once: Annotated[bool, typer.Option("--once", help="Print the current state and exit.")] = False,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Follow a session until Ctrl-C: verdict, errors, alarms, last rounds; as plain lines if there is no terminal."""
    from .commands import watch as watching

    with errors_in_a_line(), _client(url, key) as client:
        watching.watch(client, console(), session, once=once)


app.command()(errors_in_a_line()(consume))


@app.command()
def sessions(
    name: Annotated[str | None, typer.Argument(help="One session; without it all are listed.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the session.")] = False,
    json_alone: Annotated[bool, typer.Option("--json", help="Print only JSON for one session.")] = False,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """List sessions, inspect one, or delete it."""
    from rich.highlighter import JSONHighlighter

    with errors_in_a_line(), _client(url, key) as client:
        if name is None:
            console().print(_listing(client.sessions()))
        elif delete:
            client.delete(name)
            console().print(f"{name}: deleted", highlight=False, markup=False)
        else:
            found = client.inspect(name)
            if not json_alone:
                verdict = found["verdict"]
                line = "no verdict yet" if verdict is None else verdict["text"]
                console().print(escaped(f"{name}: {line}"), highlight=False, markup=False, soft_wrap=True)
            shown = JSONHighlighter()(escaped(json.dumps(found, indent=2, ensure_ascii=False)))
            console().print(shown, no_wrap=True, soft_wrap=True)


@app.command("repair")
def run_repair(
    session: Annotated[str, typer.Argument(help="The session that cannot be loaded.")],
    yes: Annotated[bool, typer.Option("--yes", help="Write the repair; without it nothing is changed.")] = False,
    store: StoreOption = None,
) -> None:
    """Roll a session back to its last request that replays. Workers may keep running meanwhile."""
    import asyncio

    from .replica.repair import repair

    async def repaired(url: str) -> "RepairReport":
        async with opened(url) as found:
            return await repair(found, session, write=yes)

    with errors_in_a_line():
        check_there(url := store_url(store))
        report = asyncio.run(repaired(url))
    lost = max(0, report.rounds - report.kept)
    if report.trouble is None:
        typer.echo(f"{session}: all {report.rounds:,} rounds replay; there is nothing to do.")
        return
    of_all = f" of {report.rounds:,}" if lost else ""
    typer.echo(escaped(f"{session}: {report.kept:,}{of_all} rounds replay; then: {report.trouble}"))
    if report.is_written:
        gone = f"; the last {lost:,} rounds are gone, and so are their ids" if lost else ""
        typer.echo(f"{session}: is at round {report.kept:,} now{gone}.")
        return
    change = f"removes the last {lost:,} rounds, for good" if lost else f"continues it at round {report.kept:,}"
    typer.echo(f"Nothing was changed. `okl repair {session} --yes` {change}.")
    raise typer.Exit(REFUSED)


app.command("export")(moves.run_export)
app.command("import")(moves.run_import)
app.command("move")(moves.run_move)
app.command("archive")(moves.run_archive)
app.command("backtest")(moves.run_backtest)


@app.command()
def version(
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also print the versions of Python, numpy and the BLAS.")
    ] = False,
) -> None:
    """Print the version."""
    typer.echo(__version__)
    if verbose:
        from okl_core.linalg.arithmetic import arithmetic

        typer.echo(f"python {platform.python_version()}, {arithmetic()}")


def _listing(found: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    table = Table()
    for heading in ("session", "learner", "rounds", "waiting"):
        table.add_column(heading, justify="right" if heading in ("rounds", "waiting") else "left")
    for entry in found:
        table.add_row(entry["name"], entry["kind"], f"{entry['t']:,}", f"{entry['waiting']:,}")
    return table


def _print_metrics(found: dict[str, Any]) -> None:
    metrics = found["metrics"]
    if not metrics["rounds"]:
        console().print(f"{found['name']}: 0 rounds", highlight=False, markup=False)
        return
    how = f"mistake rate {metrics['mistake_rate']:.2%}" if "mistake_rate" in metrics else f"RMSE {metrics['rmse']:.6g}"
    console().print(f"{found['name']}: {metrics['rounds']:,} rounds, {how}", highlight=False)
