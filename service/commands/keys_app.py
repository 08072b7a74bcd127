"""The command `okl keys`: its options and its output."""

# No deferred annotations: see service/cli.py.

import sys
from typing import Annotated, Literal

import typer

from .options import StoreOption, settings_with
from .outcome import REFUSED, errors_in_a_line
from .stores import check_there

keys_app = typer.Typer(help="Create, list and revoke API keys, directly in the store.", no_args_is_help=True)


@keys_app.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What or who the key is for.")],
    scope: Annotated[
        Literal["read", "write", "admin"], typer.Option(help="write includes read, admin includes both.")
    ] = "write",
    prefix: Annotated[str, typer.Option(help="Allow only sessions whose names begin with this.")] = "",
    expires: Annotated[str | None, typer.Option(help="Time to live: 30m, 12h, 90d; default: unlimited.")] = None,
    rate: Annotated[
        str | None,
        typer.Option(help="Requests per second, counting each round of a batch, and a burst: 50 or 50,200."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Create a key. It is printed once, on standard output, and cannot be shown again."""
    from . import keys

    with errors_in_a_line():
        key, text = keys.create(_store(store), name, scope, prefix=prefix, expires=expires, rate=rate)
    typer.echo(
        f"{key.id}: {key.scope.word}, sessions {prefix}*; save the key below, it cannot be shown again.", err=True
    )
    typer.echo(text)


@keys_app.command("list")
def list_keys(store: StoreOption = None) -> None:
    """List all keys, without their secrets."""
    from rich.console import Console
    from rich.table import Table

    from . import keys

    with errors_in_a_line():
        check_there(url := _store(store))
        found = keys.all_keys(url)
    table = Table(*("id", "name", "scope", "prefix", "rate", "made (UTC)", "expires (UTC)"))
    for key in found:
        table.add_row(*keys.line_of(key))
    Console(width=None if sys.stdout.isatty() else 140, markup=False, highlight=False).print(table)


@keys_app.command("revoke")
def revoke_key(
    id: Annotated[str, typer.Argument(help="The eight characters after `okl_`.")], store: StoreOption = None
) -> None:
    """Revoke a key: within two seconds no worker accepts it any more."""
    from . import keys

    with errors_in_a_line():
        check_there(url := _store(store))
        existed = keys.revoke(url, id)
    if not existed:
        typer.echo("There is no such key.", err=True)
        raise typer.Exit(REFUSED)
    typer.echo("The key is revoked.")


def _store(url: str | None) -> str:
    from ..logs import configure

    settings = settings_with(store=url)
    # The command's own message says the same to whoever reads the terminal.
    configure(settings, shows_audit=False)
    return settings.store
