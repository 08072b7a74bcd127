"""Challengers in tests: the rows and labels of their champions, and what is asked again and again."""

from __future__ import annotations

import asyncio
from typing import Any

from service.demo_data import magic
from service.session.session import Session
from tests.service.api import Api
from tests.service.definitions import GAUSSIAN, POMDR

X, Y = magic()
LABELS = ["no", "yes"]
AUTO: Any = None
CLIPPED = {"kind": "kons", "config": {"kernel": GAUSSIAN, "loss": "squared", "clip": 1.0}}
CHAMPION: dict[str, Any] = {"learner": {"kind": "majority"}, "labels": LABELS}


def named(row: int) -> str:
    return LABELS[int(Y[row] > 0)]


async def caught_up(api: Api, challenger: str = "c", name: str = "s") -> dict[str, Any]:
    told: dict[str, Any] = {}
    for _ in range(1200):  # a worker looks for what it was not told every 18 s at the latest
        told = await api.call("GET", f"/sessions/{name}/challengers/{challenger}")
        if told["behind"] == 0:
            return told
        await asyncio.sleep(0.02)
    raise AssertionError(told)


async def attach(api: Api, learner: Any = POMDR, challenger: str = "c", name: str = "s", **more: Any) -> dict[str, Any]:
    body = {"name": challenger, "learner": learner, **more}
    return await api.call("POST", f"/sessions/{name}/challengers", body, status=201)


async def session_of(api: Api, name: str) -> Session:
    return await api.worker.rounds.with_session(name, lambda session, *_: session.copy())
