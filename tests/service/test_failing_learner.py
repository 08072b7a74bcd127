"""A learner that breaks its contract: it plays a round, and cannot learn it."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from okl.errors import NumericalFailure, SessionFailed
from okl_core import register
from okl_core.errors import NumericalError
from service.api.dependencies import Worker
from service.session.requests import Predicted, Report, Updated
from tests.contract.broken import Sleepy
from tests.service.definitions import define
from tests.service.worker import Gate, Watched, settle, together, told, working

pytestmark = pytest.mark.anyio

TOO_MUCH = 100.0


class Brittle(Sleepy):
    """Fails in the second half of a round."""

    kind: ClassVar[str] = "brittle"

    def learn(self, config: Any, state: Any, played: Any) -> None:
        if played.x[0] < -TOO_MUCH:
            raise ValueError("a bug")
        if played.x[0] > TOO_MUCH:
            raise NumericalError("the weights overflow")
        super().learn(config, state, played)


@pytest.fixture(autouse=True)
def brittle(own_registry: None) -> None:
    register(Brittle)


def report(value: float) -> Report:
    return Report(1, x=[value, 0.5])


async def test_what_is_committed_and_cannot_be_learned_is_told_from_then_on(worker: Worker, watched: Watched) -> None:
    """The round is durable, so its client is told; whoever asks next is told that the session is stuck, on any worker."""
    for name in ("s", "other"):
        await worker.sessions.create(define({"kind": "brittle"}, name))
    assert (await worker.rounds.update("s", report(1.0))).t == 1
    assert (await worker.rounds.update("s", report(2 * TOO_MUCH))).t == 2
    async with working(watched.as_store) as second:
        for rounds in (worker.rounds, second.rounds):
            for _ in range(2):
                with pytest.raises(SessionFailed, match="cannot learn round 2"):
                    await rounds.update("s", report(1.0))
            assert (await rounds.update("other", report(1.0))).t
    assert (await watched.store.head("s")).tip.round == 2


async def test_in_a_queue_it_is_refused_and_the_others_go_on(worker: Worker, watched: Watched) -> None:
    """A turn learns ahead, so that this is found out before anything is committed."""
    await worker.sessions.create(define({"kind": "brittle"}))
    await worker.rounds.update("s", report(1.0))
    gate = Gate(watched)
    tasks = together(worker.rounds.update("s", report(2.0)))
    await gate.arrived.wait()
    tasks += together(
        worker.rounds.update("s", report(3.0)),
        worker.rounds.update("s", report(2 * TOO_MUCH)),
        worker.rounds.update("s", report(4.0)),
        worker.rounds.predict("s", [1.0, 1.0], wait=False),
    )
    await settle()
    gate.open()
    first, second, refused, third, predicted = await told(tasks)
    assert [type(answer) for answer in (first, second, third)] == [Updated] * 3
    assert [first.t, second.t, third.t] == [2, 3, 4]
    assert isinstance(refused, NumericalFailure)
    assert isinstance(predicted, Predicted)
    assert predicted.t == 4
    assert (await watched.store.head("s")).tip.round == 4


async def test_a_bug_in_it_is_logged(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    """The client was answered before, so nobody else would hear of it."""
    await worker.sessions.create(define({"kind": "brittle"}))
    assert (await worker.rounds.update("s", report(-2 * TOO_MUCH))).t == 1
    await settle()
    [record] = [record for record in caplog.records if record.message == "unexpected error"]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)
