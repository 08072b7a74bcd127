"""A real `okl serve` process to be attacked, the same for all attacks: what one leaves behind would show in the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.processes import Worker
from okl.client import Client

HEAD_S, BODY_S = 2.0, 2.0


@pytest.fixture(scope="session")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """At the end it still serves, and none of the attacks has left a traceback."""
    log = tmp_path_factory.mktemp("attacks") / "log"
    worker = Worker("sqlite://", log=log, head_timeout_s=HEAD_S, body_timeout_s=BODY_S, max_connections=60)
    worker.start()
    try:
        with Client(worker.url) as client:
            client.create("s", {"kind": "mean"}, y_range=[0.0, 10.0], strict=True, scale={"kind": "none"})
            client.rounds("s", [[0.1, 0.2], [0.3, 0.4]], [1.0, 2.0])
            client.create("f", {"kind": "mean"}, schema={"a": "number", "b": "number"}, strict=True)
        yield worker
        with Client(worker.url) as client:
            assert client.predict("s", [0.1, 0.2], wait=False)["t"] == 2
    finally:
        worker.kill()
    text = log.read_text()
    assert "Traceback" not in text, text[text.index("Traceback") - 500 :][:2000]
    assert all(len(line) < 20_000 for line in text.splitlines())


@pytest.fixture(scope="session")
def decoy() -> Iterator[Worker]:
    """Another worker, to be attacked in place of the first."""
    worker = Worker("sqlite://")
    worker.start()
    try:
        yield worker
    finally:
        worker.kill()


@pytest.fixture
def port(worker: Worker) -> int:
    return worker.port
