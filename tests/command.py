"""The command `okl` in a separate process, as an operator starts it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.warm import warm

START_S = 60.0


def environment(**variables: str) -> dict[str, str]:
    """The environment of this process, with these as the only settings of ours."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("OKL_", "OPENBLAS_"))}
    return mine | variables


@contextmanager
def okl(*arguments: str, cwd: Path, is_warm: bool = True, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command in its own process session; kill it and all that it started at the end of the block.

    A warm one does not spend its time on imports, see tests/warm.py; several workers are started cold, as uvicorn does it.
    """
    # A shell makes its background jobs ignore Ctrl-C, and this process would inherit that. Resetting it in a `preexec_fn`
    # would copy the page tables of the tests, which takes 50 ms.
    heeded = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        process = (warm if is_warm and workers_in(arguments) == 1 else subprocess.Popen)(
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
        # Surviving processes would keep the pipes open.
        for pid in left_of(process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def workers_in(arguments: Sequence[str]) -> int:
    return int(arguments[arguments.index("--workers") + 1]) if "--workers" in arguments else 1


def left_of(session: int) -> dict[int, str]:
    """The processes of a process session and their commands, without zombies."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name in parentheses may contain any character.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
    return found


@contextmanager
def serving(
    store: str, cwd: Path, *, workers: int = 1, port: int = 0, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start `okl serve`; yield it and its url once it listens."""
    arguments = ("serve", "--port", str(port), "--store", store, "--workers", str(workers))
    with okl(*arguments, cwd=cwd, **variables) as process:
        line = until(process, "http://127.0.0.1:")
        port = line.partition("http://127.0.0.1:")[2].split()[0]
        yield process, f"http://127.0.0.1:{port}"


def until(process: subprocess.Popen[str], text: str, kept: list[str] | None = None) -> str:
    """The first line on standard error that contains `text`; `kept` receives it and all lines before it."""
    assert process.stderr is not None
    kept = [] if kept is None else kept
    for line in process.stderr:
        kept.append(line)
        if text in line:
            return line
    raise AssertionError("".join(kept))


def until_imports(process: subprocess.Popen[str]) -> None:
    """Wait until the command has begun its imports: Python itself handles any earlier signal."""
    maps = Path(f"/proc/{process.pid}/maps")
    while process.poll() is None and maps.parent.exists() and "pydantic" not in maps.read_text():
        time.sleep(0.01)


def is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
