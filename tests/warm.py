"""Processes of the service that need not import it: Python's fork server, which has imported everything, forks them.

The imports take two seconds of processor time, nearly all that a process of most tests takes. Such a process is otherwise as
one that an operator started: it has its own arguments, environment, folder, output and process session. What a process does
while it starts is for real ones, in tests/service/test_serve.py and tests/service/test_start.py.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, Final

from service.blas_kernels import prepare
from service.start import main

Output = int | IO[Any] | None

COMMAND = [sys.executable, "-m", "service.start"]
COMMANDS = (COMMAND, [sys.executable, "-m", "okl"])

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["tests.warm_imports"])


def warm(args: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[Any] | Warm:
    """Like `Popen`: forked if it runs one of COMMANDS and would do the same arithmetic, which a fork cannot change."""
    environment = dict(os.environ if env is None else env)
    if list(args[: len(COMMAND)]) not in COMMANDS or arithmetic_of(environment) != arithmetic_of(os.environ):
        return subprocess.Popen(args, env=environment, **options)
    return Warm(args[len(COMMAND) :], environment, **options)


def arithmetic_of(environment: Mapping[str, str]) -> dict[str, str]:
    """What OpenBLAS reads while numpy loads."""
    prepared = dict(environment)
    prepare(prepared)
    return {name: value for name, value in prepared.items() if name.startswith("OPENBLAS_")}


class Warm:
    """A forked process; its attributes are those of `Popen`."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: dict[str, str],
        *,
        cwd: str | Path | None = None,
        stdout: Output = None,
        stderr: Output = None,
        text: bool = False,
        start_new_session: bool = False,
        process_group: int | None = None,
    ) -> None:
        self.args = [*COMMAND, *arguments]
        self.stdout, out = _opened(stdout, text=text)
        self.stderr, error = (None, out) if stderr == subprocess.STDOUT else _opened(stderr, text=text)
        place = str(cwd or Path.cwd())
        self._process = _server.Process(
            target=_become, args=([*arguments], environment, place, out, error, start_new_session, process_group)
        )
        self._process.start()
        self.pid: Final = self._process.pid or 0
        for end in (out, error):
            if isinstance(end, Connection):
                end.close()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """Read both outputs to their ends, unless that was done before, and wait for the end of the process."""
        pipes = [pipe if pipe is None or not pipe.closed else None for pipe in (self.stdout, self.stderr)]
        with ThreadPoolExecutor(2) as readers:
            out, error = (None if pipe is None else readers.submit(pipe.read) for pipe in pipes)
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                # Nobody else has the ends of the pipes, so the readers end with the process.
                self.kill()
                raise
        for pipe in pipes:
            if pipe is not None:
                pipe.close()
        return out and out.result(), error and error.result()


def _opened(kind: Output, *, text: bool) -> tuple[IO[Any] | None, Connection | str | None]:
    """What the tests read, and what the process writes to: the end of a pipe, a file's name, or None to inherit it."""
    if kind is None:
        return None, None
    if isinstance(kind, int):
        if kind == subprocess.DEVNULL:
            return None, os.devnull
        theirs, its = _server.Pipe(duplex=False)
        mine = os.fdopen(os.dup(theirs.fileno()), "r" if text else "rb")
        theirs.close()
        return mine, its
    return None, kind.name


def _become(
    arguments: list[str],
    environment: dict[str, str],
    cwd: str,
    out: Connection | str | None,
    error: Connection | str | None,
    leads_session: bool,
    group: int | None,
) -> None:
    """In the new process: be what the command is."""
    if leads_session:
        os.setsid()
    if group is not None:
        os.setpgid(0, group)
    for end, file in ((out, 1), (error, 2)):
        if isinstance(end, Connection):
            os.dup2(end.fileno(), file)
        elif end is not None:
            os.dup2(os.open(end, os.O_WRONLY | os.O_APPEND), file)
    for end in (out, error):
        if isinstance(end, Connection):
            end.close()
    # The server's own knows whether the server's file can seek, which a pipe cannot.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    prepare(os.environ)
    sys.argv = ["okl", *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
