"""A bad request costs a worker little: the answer is short and quick, and the worker grows by little."""

from __future__ import annotations

import time

import pytest

from bench.processes import Worker
from tests.attacks.attacker import forget_peak, memory_mib, post, talk
from tests.attacks.bad_bodies import SAY
from tests.attacks.bad_heads import HEADS

MAX_ANSWER_BYTES = 8 << 10
MAX_ANSWER_S = 1.0
MAX_GROWTH_MIB = 64


@pytest.mark.parametrize("name", SAY)
def test_a_bad_body_costs_little(worker: Worker, name: str) -> None:
    path, body = SAY[name]()
    request = [post(path, body)]
    calm_mib = memory_mib(worker.process.pid)
    forget_peak(worker.process.pid)
    answers = [talk(worker.port, request) for _ in range(3)]
    grown_mib = memory_mib(worker.process.pid, "VmHWM") - calm_mib
    for answer in answers:
        assert answer.status in (400, 404, 413, 422, 431), answer.data[:500]
        assert len(answer.data) <= MAX_ANSWER_BYTES
        assert answer.document["instance"]
        assert len(answer.document.get("errors", [])) <= 10
    assert min(answer.seconds for answer in answers) < MAX_ANSWER_S
    assert grown_mib < MAX_GROWTH_MIB


@pytest.mark.parametrize("name", HEADS)
def test_a_bad_head_costs_little(worker: Worker, name: str) -> None:
    """It is cut off, with an answer unless the client is too busy to read one."""
    parts, statuses = HEADS[name]
    calm_mib = memory_mib(worker.process.pid)
    forget_peak(worker.process.pid)
    started = time.monotonic()
    answer = talk(worker.port, parts())
    assert time.monotonic() - started < 10
    assert answer.status in statuses, answer.data[:300]
    assert len(answer.data) <= MAX_ANSWER_BYTES
    assert memory_mib(worker.process.pid, "VmHWM") - calm_mib < MAX_GROWTH_MIB
