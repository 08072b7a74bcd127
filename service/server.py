"""Running the service: uvicorn, through its public interface, behind limits on every connection."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, final

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.supervisors import Multiprocess

from okl.errors import ConfigurationError, ServiceError

from .api.connections import ConnectionBounds, ConnectionLimiter, ConnectionMiddleware
from .api.socket_protocol import SocketProtocol
from .settings import Settings

log = logging.getLogger("okl")

KEEP_ALIVE_S: Final = 5
SPARE_FILES: Final = 256
WORKER_ANSWERS_WITHIN_S: Final = 30
"""A worker that is silent for longer is killed. On a busy machine the imports of a starting worker take a while."""

CLOSED_WITHIN_S: Final = 0.6
"""The time for the app to close its store after the grace period; then the process exits, whatever its threads do."""


def config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """The configuration to run an app in this process: `uvicorn.Server(config(app, settings))`."""
    return uvicorn.Config(ConnectionMiddleware(app), **_options(settings))


def serve(settings: Settings, given: Mapping[str, str], *, workers: int = 1) -> None:
    """Run the service until it is stopped. Several workers are separate processes, which read the settings themselves.

    `given` are the settings of the command line, which reach them as variables of the environment; a secret from a file does
    not. Raises ConfigurationError if the address or the metrics folder cannot be used, ServiceError if the start fails.
    """
    asyncio.run(_check_address(settings))
    _allow_files(settings.max_connections + SPARE_FILES)
    if settings.metrics_dir:
        _check_metrics_dir(Path(settings.metrics_dir))
    # When all requests are answered, uvicorn raises the signal that stopped it again; a requested stop is a success.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ExitStack() as stack:
        stack.enter_context(suppress(KeyboardInterrupt))
        try:
            if workers == 1:
                uvicorn.Server(uvicorn.Config(application(settings), **_options(settings))).run()
                return
            os.environ |= given
            if not settings.metrics_dir:
                # Any worker may answer on the shared port, so each reports the metrics of all.
                os.environ["OKL_METRICS_DIR"] = stack.enter_context(tempfile.TemporaryDirectory(prefix="okl-metrics-"))
            _supervise(uvicorn.Config(f"{__name__}:application", factory=True, workers=workers, **_options(settings)))
        except SystemExit as ended:
            if ended.code == STARTUP_FAILURE:
                raise ServiceError("The service did not start; its log says why.") from ended
            raise


async def _check_address(settings: Settings) -> None:
    """Raises ConfigurationError if the service cannot listen there."""
    with _named("OKL_HOST or OKL_PORT"):
        bound = await asyncio.get_running_loop().create_server(
            asyncio.Protocol, settings.host, settings.port, start_serving=False
        )
    bound.close()


def _check_metrics_dir(folder: Path) -> None:
    """Make the folder if there is none. Raises ConfigurationError if no file can be written there."""
    with _named("OKL_METRICS_DIR"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Raises ConfigurationError, which names the settings that cannot be used."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{what}: {error}.") from error


def _supervise(config: uvicorn.Config) -> None:
    """Run the workers until they are stopped. Raises SystemExit, as a single server does, if one of them cannot start."""
    supervisor = Supervisor(config, sockets=[config.bind_socket()])
    supervisor.run()
    if any(worker.exitcode == STARTUP_FAILURE for worker in supervisor.processes):
        sys.exit(STARTUP_FAILURE)


@final
class Supervisor(Multiprocess):
    """Replaces a worker as soon as it dies, also while it is asked whether it lives.

    uvicorn keeps the worker's end of their pipe open in this process too. So the death does not end the pipe, and the
    question would wait for the answer of the dead for WORKER_ANSWERS_WITHIN_S, while nobody looks after the other workers.
    """

    def keep_subprocess_alive(self) -> None:
        for worker in self.processes:
            worker.child_conn.close()
        super().keep_subprocess_alive()


def application(settings: Settings | None = None) -> ASGIApp:
    """The app that a worker process runs. Without arguments (as uvicorn's factory), it reads the settings itself."""
    gc.disable()  # until all is imported, see service/import_phase.py
    from .app import create_app, end_streams

    settings = settings or Settings()
    app = create_app(settings)
    gc.freeze()
    gc.enable()
    seconds = settings.shutdown_grace_s + CLOSED_WITHIN_S
    return ConnectionMiddleware(ExitInTime(app, seconds, lambda: end_streams(app)))


def _options(settings: Settings) -> dict[str, Any]:
    bounds = ConnectionBounds(
        connections=settings.max_connections,
        head_bytes=settings.max_head_bytes,
        head_timeout_s=settings.head_timeout_s,
        idle_s=KEEP_ALIVE_S + 1.0,
        body_timeout_s=settings.body_timeout_s,
    )
    return {
        **_tls(settings),
        "host": settings.host,
        "port": settings.port,
        "http": ConnectionLimiter(bounds, AutoHTTPProtocol),
        "ws": SocketProtocol,
        "ws_max_size": settings.max_row_bytes,
        # Compressing a message of a stream takes longer than learning from it.
        "ws_per_message_deflate": False,
        "timeout_keep_alive": KEEP_ALIVE_S,
        "timeout_graceful_shutdown": settings.shutdown_grace_s,
        "timeout_worker_healthcheck": WORKER_ANSWERS_WITHIN_S,
        "access_log": False,
        "log_config": None,
        "server_header": False,
        "lifespan": "on",
    }


def _tls(settings: Settings) -> dict[str, Any]:
    """The TLS options of uvicorn. Raises ConfigurationError if they are invalid."""
    if not settings.tls_cert:
        if settings.tls_key or settings.tls_ca:
            raise ConfigurationError("OKL_TLS_KEY and OKL_TLS_CA need a certificate: name its file in OKL_TLS_CERT.")
        return {}
    files = {"OKL_TLS_CERT": settings.tls_cert, "OKL_TLS_KEY": settings.tls_key, "OKL_TLS_CA": settings.tls_ca}
    for variable, path in files.items():
        if path:
            # OpenSSL does not say which file it cannot open.
            with _named(variable):
                Path(path).open("rb").close()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    key = f"with OKL_TLS_KEY {settings.tls_key}" if settings.tls_key else "without OKL_TLS_KEY"
    with _named(f"OKL_TLS_CERT {settings.tls_cert} {key}"):
        # Without a password argument, OpenSSL would ask for that of an encrypted key on a terminal that does not exist.
        context.load_cert_chain(settings.tls_cert, settings.tls_key or None, password="")
    if settings.tls_ca:
        with _named(f"OKL_TLS_CA {settings.tls_ca}"):
            context.load_verify_locations(settings.tls_ca)
    options: dict[str, Any] = {"ssl_certfile": settings.tls_cert, "ssl_keyfile": settings.tls_key or None}
    if settings.tls_ca:
        options |= {"ssl_ca_certs": settings.tls_ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options


def _allow_files(wanted: int) -> None:
    """Raise the limit of open files: each connection is one, and the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        within = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, within), hard))


@final
class ExitInTime:
    """ASGI middleware: when the process is asked to stop, call `begin`, and exit after `seconds` at the latest.

    The server cancels requests that are not answered in the grace period, but Python waits for computing threads for ever.
    Nothing is lost with them: everything acknowledged is in the store.
    """

    def __init__(self, app: ASGIApp, seconds: float, begin: Callable[[], None]) -> None:
        self._app = app
        self._seconds = seconds
        self._begin = begin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for number in (signal.SIGTERM, signal.SIGINT):
                self._start_clock_at(number)
        await self._app(scope, receive, send)

    def _start_clock_at(self, number: signal.Signals) -> None:
        servers_own = signal.getsignal(number)

        def stop(number: int, frame: FrameType | None) -> None:
            clock = threading.Timer(self._seconds, self._exit)
            clock.daemon = True
            clock.start()
            # Endless answers, such as streams of events, need not wait for the end of the grace period.
            self._begin()
            if callable(servers_own):
                servers_own(number, frame)

        signal.signal(number, stop)

    def _exit(self) -> None:
        log.warning("stopped with work under way", extra={"after_s": self._seconds})
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)
