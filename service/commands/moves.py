"""`okl export`, `okl import`, `okl move`, `okl archive`, `okl backtest`: commands on sessions in a store."""

# No deferred annotations: see service/cli.py.

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from okl.errors import ConfigurationError, ServiceError, SessionMoved, StoreTimeout, StoreUnavailable

from ..escaping import escaped
from .options import StoreOption, check_out, store_url
from .outcome import INTERRUPTED, REFUSED, errors_in_a_line, text_of
from .stores import check_kept, check_there, opened
from .terminal import console

if TYPE_CHECKING:
    from ..archive.mover import Moved
    from ..archive.transport import Carried
    from ..store.base import Store

Names = Annotated[list[str] | None, typer.Argument(help="Sessions; default: all of the store.")]


def run_export(
    session: Names = None,
    out: Annotated[Path, typer.Option(help="The file to write; a folder gets one file per session.")] = Path(
        "sessions.okl"
    ),
    store: StoreOption = None,
) -> None:
    """Write complete sessions to a file; run it again after an interruption to resume."""
    with errors_in_a_line():
        if not out.is_dir():
            check_out(out)
        _run(store_url(store), lambda stores: _export(stores[0], session or [], out, out.is_dir()))


def run_import(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="File written by `okl export`.")],
    session: Annotated[list[str] | None, typer.Argument(help="Sessions to import; default: all.")] = None,
    store: StoreOption = None,
) -> None:
    """Add the sessions of a file to a store; run it again after an interruption to resume."""
    from ..archive.examination import Examination
    from ..archive.transport import import_file
    from ..settings import Settings, session_limits_of

    async def imported(stores: Sequence["Store"]) -> int:
        limits = session_limits_of(Settings())
        found: list[Carried] = []

        def tell(one: "Carried") -> None:
            found.append(_say(one, "imported"))

        await import_file(stores[0], file, tell, lambda: Examination(limits), only=session or ())
        missing = set(session or ()) - {one.name for one in found}
        for name in sorted(missing):
            typer.echo(f"{name}: not in {file}", err=True)
        return bool(missing) + sum(one.trouble is not None for one in found)

    with errors_in_a_line():
        _run(None, imported, store_url(store))


def run_move(
    to: Annotated[str, typer.Option(help="Url of the target store.")],
    session: Names = None,
    store: StoreOption = None,
    tell: Annotated[str, typer.Option(help="Url of the service there, told to clients that still ask here.")] = "",
    undo: Annotated[
        bool, typer.Option("--undo", help="Open moved sessions here again, which the target has lost.")
    ] = False,
) -> None:
    """Move live sessions to another store without losing a round; run it again after an interruption to finish."""
    from okl.addresses import checked_url

    from ..store.moving import TO_BYTES

    with errors_in_a_line():
        if tell and len(checked_url(tell, "--tell").encode()) > TO_BYTES:
            raise ConfigurationError(f"--tell has at most {TO_BYTES} bytes.")
        if store_url(store) == to:
            raise ConfigurationError("The sessions are there already: --to names the store that they are in.")
        if undo and (not session or tell):
            raise ConfigurationError("--undo takes the names of the sessions that the target has lost, and no --tell.")
        if undo:
            check_there(to)
        names = session or []

        async def moved(stores: Sequence["Store"]) -> int:
            source, target = stores
            return await (_undo(source, target, names) if undo else _move(source, target, names, tell))

        _run(store_url(store), moved, to)


def run_archive(
    session: Annotated[str, typer.Argument(help="The session whose journal is written.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="The folder, one per session.")],
    every: Annotated[
        float | None, typer.Option(min=0.1, help="Repeat every so many seconds until Ctrl-C; default: once.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Add a session's new rounds to an archive folder; the session is not changed."""
    import asyncio

    from ..archive.journals import archive

    async def archived(stores: Sequence["Store"]) -> int:
        while True:
            found = await archive(stores[0], session, out)
            if found.missing != 0:
                typer.echo(f"{session}: {_gap(found.missing)}", err=True)
            typer.echo(f"{session}: {found.rounds:,} rounds written, up to round {found.tip.round:,}")
            if every is None:
                return 0
            await asyncio.sleep(every)

    with errors_in_a_line():
        _run(store_url(store), archived)


def run_backtest(
    session: Annotated[str, typer.Argument(help="The session whose journal is played.")],
    learner: Annotated[
        list[str] | None, typer.Option(help="A kind, a spec as JSON, or a file of specs; repeatable.")
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Folder of `okl archive` with earlier rounds."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Play a session's journal through other learners, in this process; the session is not changed."""
    from . import backtest
    from .compare import print_refusals

    with errors_in_a_line():
        check_there(store_url(store))
        found = backtest.backtest(console(), store_url(store), session, learner or [], archive)
        console().print(backtest.table_of_backtest(found))
        print_refusals(console(), found.contestants)
        if not found.is_whole:
            raise typer.Exit(INTERRUPTED)
        if all(one.refusal is not None for one in found.contestants):
            raise typer.Exit(REFUSED)


async def _export(store: "Store", names: Sequence[str], out: Path, is_folder: bool) -> int:
    from ..archive.transport import export, names_in

    listed = names or await names_in(store)
    found: list[Carried] = []

    def tell(one: "Carried") -> None:
        found.append(_say(one, "exported"))

    for path, group in [(out / f"{name}.okl", [name]) for name in listed] if is_folder else [(out, listed)]:
        # A session may be deleted after it was listed.
        await export(store, group, path, tell, missing_ok=not names)
    return sum(one.trouble is not None for one in found)


async def _move(source: "Store", target: "Store", names: Sequence[str], tell: str) -> int:
    from ..archive.mover import move
    from ..archive.parts import LEASE_S
    from ..archive.transport import names_in
    from ..store.base import Gone

    async def moved(name: str) -> "Moved":
        try:
            return await move(source, target, name, to=tell, patience_s=LEASE_S + 1.0)
        except SessionMoved as error:
            if not isinstance(await target.head(name), Gone):
                raise
            detail = f"{error.detail} There is none of this name at --to; if it went there and is lost, see --undo."
            raise SessionMoved(detail) from error

    return await _each(names or await names_in(source), moved, "moved")


async def _undo(source: "Store", target: "Store", names: Sequence[str]) -> int:
    from ..archive.mover import undo

    return await _each(names, lambda name: undo(source, target, name), "opened again", "open")


async def _each(
    names: Sequence[str], work: Callable[[str], Awaitable["Moved"]], what: str, otherwise: str | None = None
) -> int:
    """Tell of each session `what` was done, or why it was not, or, if it needed nothing, how it is (`otherwise`).

    Returns how many were refused. Raises StoreUnavailable, StoreTimeout.
    """
    from ..archive.transport import Carried

    failed = 0
    for name in names:
        try:
            moved = await work(name)
        except (StoreUnavailable, StoreTimeout):
            raise
        except ServiceError as error:
            _say(Carried(name, trouble=text_of(error)), what)
            failed += 1
        else:
            if moved.is_new or otherwise is None:
                _say(Carried(name, moved.round, moved.is_new), what)
            else:
                _say(Carried(name, moved.round), otherwise)
    return failed


def _gap(missing: int | None) -> str:
    """Return what is said of rounds that are missing in an archive; None: of an unknown number."""
    if missing is None:
        return "the session went on from another state; how many rounds were not written before is unknown"
    return f"{missing:,} rounds were trimmed before they could be written"


def _say(one: "Carried", what: str) -> "Carried":
    if one.trouble is not None:
        typer.echo(escaped(f"{one.name}: {one.trouble}"), err=True)
    else:
        typer.echo(escaped(f"{one.name}: {what} at round {one.round:,}{'' if one.is_new else ', before'}"))
    return one


def _run(source: str | None, work: Callable[[Sequence["Store"]], Awaitable[int]], target: str | None = None) -> None:
    """Run `work` with the source store, then the target store. Raises typer.Exit if anything was refused."""
    import asyncio

    from ..settings import Settings, limits_of

    if source is not None:
        check_there(source)
    if target is not None:
        check_kept(target)
    urls = [url for url in (source, target) if url is not None]

    async def worked() -> int:
        async with AsyncExitStack() as stack:
            limits = limits_of(Settings())
            return await work([await stack.enter_async_context(opened(url, limits)) for url in urls])

    if asyncio.run(worked()):
        raise typer.Exit(REFUSED)
