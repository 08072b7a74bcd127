"""The command `okl` in a process of its own, as an operator starts it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

START_S = 60.0


def environment(**variables: str) -> dict[str, str]:
    """That of this process, with no settings of ours but these."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("OKL_", "OPENBLAS_"))}
    return mine | variables


@contextmanager
def okl(*arguments: str, cwd: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the command, in a session of its own; killed at the end of the block with all that it started."""
    # A shell has what it runs in the background ignore Ctrl-C, and so would this. A `preexec_fn` that says otherwise copies
    # the page tables of the tests, 50 ms.
    heeded = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "service.start", *arguments],
            cwd=cwd,
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGINT, heeded)
    try:
        yield process
    finally:
        # Whatever is left of them keeps the pipes open.
        for pid in left_of(process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def left_of(session: int) -> dict[int, str]:
    """The processes of a session of the system and their commands, but for those that wait to be reaped by their parents."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name in parentheses may hold anything.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
    return found


@contextmanager
def serving(
    store: str, cwd: Path, *, workers: int = 1, port: int = 0, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`okl serve` and its url, once it listens."""
    arguments = ("serve", "--port", str(port), "--store", store, "--workers", str(workers))
    with okl(*arguments, cwd=cwd, **variables) as process:
        line = until(process, "http://127.0.0.1:")
        port = line.partition("http://127.0.0.1:")[2].split()[0]
        yield process, f"http://127.0.0.1:{port}"


def until(process: subprocess.Popen[str], text: str, kept: list[str] | None = None) -> str:
    """The first line on standard error that has `text`; it and all before it are kept."""
    assert process.stderr is not None
    kept = [] if kept is None else kept
    for line in process.stderr:
        kept.append(line)
        if text in line:
            return line
    raise AssertionError("".join(kept))


def until_imports(process: subprocess.Popen[str]) -> None:
    """Returns when the command has begun to import what it needs: a signal before that is Python's to answer."""
    maps = Path(f"/proc/{process.pid}/maps")
    while process.poll() is None and maps.parent.exists() and "pydantic" not in maps.read_text():
        time.sleep(0.01)


def is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
