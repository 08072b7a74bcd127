"""The command `okl` in a process of its own, as an operator starts it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_S = 60.0


def environment(**variables: str) -> dict[str, str]:
    """That of this process, with no settings of ours but these."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("OKL_", "OPENBLAS_"))}
    return mine | variables


@contextmanager
def okl(*arguments: str, cwd: Path, new_session: bool = False, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the command; killed at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "service.start", *arguments],
        cwd=cwd,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=new_session,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


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
