"""nginx in front of workers, as docker/nginx starts it, on a free port of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.http_client import HEALTHY_WITHIN_S, HOST, free_port

SCRIPT = Path(__file__).parents[1] / "docker" / "nginx" / "balance.sh"


class Balancer:
    def __init__(self, port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.port = port
        self.url = f"http://{HOST}:{port}"
        self.process = process
        self._folder = folder

    @property
    def log(self) -> str:
        return (self._folder / "nginx.log").read_text(errors="replace")

    def processes(self) -> list[int]:
        """nginx's first process, and those that it has started."""
        first = int((self._folder / "run" / "nginx.pid").read_text())
        return [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]

    def cpu_s(self) -> float:
        """CPU seconds that nginx's processes have used."""
        ticks = 0
        for pid in self.processes():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def balancer(workers: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Balancer]:
    """`workers` are name:port. nginx is stopped at the end. Raises RuntimeError if it does not start."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # nginx started by root works as nobody.
        folder.chmod(0o711)
        with _running(folder, workers, environment or {}) as found:
            yield found


@contextmanager
def _running(folder: Path, workers: Sequence[str], more: Mapping[str, str]) -> Iterator[Balancer]:
    port = free_port()
    mine = {
        "OKL_WORKERS": " ".join(workers),
        "OKL_LISTEN": f"{HOST}:{port}",
        "OKL_RUN_DIR": str(folder / "run"),
        "OKL_TLS_DIR": str(folder / "tls"),
        "OKL_LOOK_EVERY_S": "0.2",
    }
    # nginx opens its output a second time, for its access log.
    with (folder / "nginx.log").open("ab") as log:
        environment = {**os.environ, **mine, **more}
        process = subprocess.Popen(["sh", str(SCRIPT)], env=environment, stdout=log, stderr=log)
    found = Balancer(port, process, folder)
    try:
        deadline = time.monotonic() + HEALTHY_WITHIN_S
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"nginx did not start:\n{found.log}")
            time.sleep(0.02)
        yield found
    finally:
        process.terminate()
        process.wait(HEALTHY_WITHIN_S)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1.0):
            return True
    except OSError:
        return False
