"""`okl consume`: answers the messages of Redis streams in another stream, each once."""

# No deferred annotations: see service/cli.py.

import platform
import signal
from typing import Annotated

import typer

from okl.errors import ConfigurationError

from .address import service_url


def consume(
    stream: Annotated[list[str], typer.Option(help="Stream to read; repeatable.")],
    to: Annotated[str, typer.Option(help="Stream for the answers.")],
    redis: Annotated[
        str,
        typer.Option(help="Redis with the streams; pass a password in the environment.", envvar="OKL_REDIS"),
    ] = "redis://127.0.0.1:6379/0",
    group: Annotated[str, typer.Option(help="Consumer group.")] = "okl",
    consumer: Annotated[
        str | None, typer.Option(help="Name of this consumer, stable across restarts; default: the host's name.")
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Create the streams and the group if missing.")] = False,
    refused: Annotated[str | None, typer.Option(help="Stream for refusals; default: that of the answers.")] = None,
    max_length: Annotated[int, typer.Option(min=1, help="Approximate number of answers kept.")] = 1_000_000,
    under_way: Annotated[int, typer.Option(min=1, max=100_000, help="Most entries in flight.")] = 1_024,
    sockets: Annotated[int, typer.Option(min=1, max=1_000, help="Most sockets to the service, one per session.")] = 64,
    claim_after: Annotated[
        float, typer.Option(min=0.0, help="Seconds after which another consumer's entry is claimed; 0: never.")
    ] = 300.0,
    url: Annotated[
        str | None, typer.Option(help="Url of the service; default: OKL_HOST and OKL_PORT.", envvar="OKL_URL")
    ] = None,
) -> None:
    """Answer the messages of Redis streams in another stream, each once, until SIGTERM."""
    import asyncio

    from ..consuming.consumer import Bounds, Consumer
    from ..consuming.group import Group
    from ..logs import configure
    from ..settings import Settings

    if {to, refused} & set(stream):
        raise ConfigurationError("A stream that is read cannot receive the answers: they would be answered.")
    configure(Settings())
    address = service_url(url)
    if not address.startswith(("http://", "https://")):
        raise ConfigurationError("--url takes http://host:port or https://...")
    bounds = Bounds(under_way, sockets, claim_after)

    async def run() -> int | None:
        # The group's connections belong to the loop.
        name = consumer or platform.node() or "okl"
        found = Group(redis, group=group, consumer=name, output=to, refused=refused or to, max_length=max_length)
        consuming = Consumer(found, address, list(dict.fromkeys(stream)), create=create, bounds=bounds)
        caught: list[int] = []

        def stop(number: int) -> None:
            caught.append(number)
            consuming.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        try:
            await consuming.run()
        finally:
            await found.close()
        return caught[0] if caught else None

    if asyncio.run(run()) == signal.SIGINT:
        raise KeyboardInterrupt
