"""kill -9 of the consumer, the worker and Redis, in turn: each entry is answered once, each round learned once, in order."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

import okl_core
from bench.processes import Worker
from okl.client import Client
from service.demo_data import magic
from tests.budget import TIMES
from tests.command import environment
from tests.redis_server import connect, free_port, redis_process
from tests.warm import warm

ROUNDS = 400
DELAY = 7
"""Rounds after which a truth comes."""

KILLS = 8 * TIMES
LAST = 20
"""Messages that come when all kills are over."""

SESSIONS = ("a", "b")
SPEC: dict[str, Any] = {"kind": "aioli"}
X, Y = magic()


@contextmanager
def consumer(folder: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "service.start", "consume", "--consumer", "one", "--create", *options]
    with (folder / "consumer.log").open("ab") as log:
        process = warm(command, env=environment(), stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def messages() -> list[tuple[str, dict[str, Any]]]:
    """Predictions with an id from their producer, and their truths; a round whose truth is known has no id."""
    found: list[tuple[str, dict[str, Any]]] = []
    for i in range(ROUNDS + DELAY):
        for session in SESSIONS:
            if i < ROUNDS:
                found.append((session, {"x": X[i].tolist(), "id": f"row-{i}"}))
            if i >= DELAY:
                found.append((session, {"id": f"row-{i - DELAY}", "y": int(Y[i - DELAY])}))
            if i % 10 == 0 and i < ROUNDS:
                found.append((session, {"x": X[ROUNDS + i].tolist(), "y": int(Y[ROUNDS + i])}))
    return found


def answers_in(client: Any) -> list[tuple[str, dict[str, Any]]]:
    return [
        (fields[b"source"].decode(), json.loads(fields[b"answer"]) | {"session": fields[b"session"].decode()})
        for _, fields in client.xrange("answers")
    ]


def test_each_entry_is_answered_once(tmp_path: Path) -> None:
    dice = random.Random(1)
    redis_port = free_port()
    # With `everysec` Redis may answer before writing while an fsync is in progress: a kill would lose acknowledged writes.
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    url = f"redis://127.0.0.1:{redis_port}/0"
    options = ("--stream", "rounds", "--to", "answers", "--redis", url, "--under-way", "100")
    asked = messages()
    worker = Worker(f"{url}?deadline_s=2", log=tmp_path / "worker.log")

    def started() -> Any:
        return redis_process(tmp_path / "redis", *durable, port=redis_port)

    running = started()
    running.__enter__()
    client: Any = connect(redis_port)
    try:
        worker.start()
        with Client(worker.url) as okl:
            for session in SESSIONS:
                okl.create(session, SPEC, labels=[-1, 1], strict=True, scale={"kind": "none"})

        def add(some: list[tuple[str, dict[str, Any]]]) -> list[str]:
            return [
                client.xadd("rounds", {"session": session, "message": json.dumps(message)}).decode()
                for session, message in some
            ]

        entries = add(asked[:-LAST])
        kills = Counter[str]()
        while client.xlen("answers") < len(entries) and kills.total() < KILLS:
            with consumer(tmp_path, *options, "--url", worker.url) as process:
                before = client.xlen("answers")
                deadline = time.monotonic() + 30
                while client.xlen("answers") <= min(before + dice.randrange(40), len(entries) - 1):
                    assert process.poll() is None, (tmp_path / "consumer.log").read_text()
                    assert time.monotonic() < deadline, (tmp_path / "consumer.log").read_text()
                    time.sleep(0.001)
                kind = ("consumer", "worker", "redis", "consumer")[kills.total() % 4]
                kills[kind] += 1
                if kind == "worker":
                    worker.kill()
                    worker.start()
                elif kind == "redis":
                    running.__exit__(None, None, None)
                    running = started()
                    running.__enter__()
                    client.ping()
                if kind != "consumer":
                    time.sleep(dice.uniform(0.0, 0.5))
        assert len(kills) == 3
        entries += add(asked[-LAST:])
        with consumer(tmp_path, *options, "--url", worker.url) as process:
            deadline = time.monotonic() + 60
            while client.xlen("answers") < len(entries) and time.monotonic() < deadline:
                time.sleep(0.05)
            process.terminate()
            assert process.wait(30) == 0
        answers = answers_in(client)
        assert Counter(source for source, _ in answers) == Counter(entries)
        assert client.xpending("rounds", "okl")["pending"] == 0
        found = dict(answers)
        for session in SESSIONS:
            assert_in_order(
                [(one, found[entry]) for entry, (name, one) in zip(entries, asked, strict=True) if name == session]
            )
    finally:
        worker.kill()
        with suppress(redis.RedisError):
            client.close()
        running.__exit__(None, None, None)


def assert_in_order(told: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Check the answers against those of a bare learner that takes the messages in stream order."""
    learner = okl_core.create(SPEC, dim=X.shape[1])
    waiting: dict[str, Any] = {}
    for message, answer in told:
        assert "refused" not in answer, answer
        if "y" in message:
            learner.update(message.get("x") or waiting.pop(message["id"]), message["y"])
        else:
            waiting[message["id"]] = message["x"]
            assert answer["score"] == pytest.approx(learner.predict(message["x"]).value, rel=1e-9, abs=1e-12)
        assert answer["t"] == learner.t
    assert waiting == {}
