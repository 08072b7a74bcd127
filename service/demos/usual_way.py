"""The usual way to serve a model that learns: a River model behind FastAPI, pickled to a store that all workers share.

It answers the calls of `Client` that a stream needs, so that the same client plays the same rounds here and with okl:
predict, update, inspect, is_ready. USUAL_STORE is the store of the models, redis://... or a folder. The first part of the
path is how they are stored:

    /memory       not at all: each worker has a separate model
    /snapshots    in memory, and in the store after each hundred updates; a worker reads it when it starts
    /pickled      only in the store: each update is GET, learn, SET
    /watched      as /pickled, in a transaction of Redis that is retried on a conflict

An update repeats its input, so that nothing depends on stored predictions. Each model also counts how often it has learned
each update, one byte each, by the number at the end of the update's id; nothing else is specific to us.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable
from numbers import Number
from pathlib import Path
from typing import Any, Literal, Protocol

from fastapi import FastAPI
from pydantic import BaseModel
from river import compose, linear_model, preprocessing

Input = dict[str, Any] | list[float]


class PredictIn(BaseModel):
    x: Input
    id: str | None = None
    wait: bool = True


class UpdateIn(BaseModel):
    id: str
    x: Input
    y: float | str


class UsualModel:
    """A pipeline, built when the first truth shows which kind is needed, and the counts of learned updates."""

    def __init__(self) -> None:
        self.pipeline: Any = None
        self.is_classifier = False
        self.learned = bytearray()

    def predict(self, x: Input) -> dict[str, Any]:
        if self.pipeline is None:
            return {"value": 0.0}
        if not self.is_classifier:
            return {"value": self.pipeline.predict_one(_record(x))}
        chance = self.pipeline.predict_proba_one(_record(x))[True]
        return {"label": LABEL if chance > 0.5 else None, "probability": chance}

    def learn(self, x: Input, y: float | str, number: int) -> None:
        if self.pipeline is None:
            self.is_classifier = isinstance(y, str)
            self.pipeline = _pipeline(linear_model.LogisticRegression() if self.is_classifier else _regression())
        self.pipeline.learn_one(_record(x), y == LABEL if self.is_classifier else y)
        self.learned.extend(bytes(max(0, number + 1 - len(self.learned))))
        self.learned[number] = min(255, self.learned[number] + 1)


LABEL = os.environ.get("USUAL_LABEL", "late")
"""The class whose probability is predicted."""


def _regression() -> Any:
    return linear_model.LinearRegression(intercept_lr=0.1)


def _pipeline(learner: Any) -> Any:
    texts = compose.SelectType(str) | preprocessing.OneHotEncoder()
    numbers = compose.SelectType(Number) | preprocessing.StandardScaler()
    return (texts + numbers) | learner


def _record(x: Input) -> dict[Any, Any]:
    return x if isinstance(x, dict) else dict(enumerate(x))


# -- where models are kept ----------------------------------------------------------------------------------------------

Change = Callable[[UsualModel], None]


class Shelf(Protocol):
    async def get(self, name: str) -> bytes | None: ...

    async def put(self, name: str, blob: bytes) -> None: ...


class FolderShelf:
    """One file per model, replaced atomically."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def get(self, name: str) -> bytes | None:
        path = self._folder / name
        return await asyncio.to_thread(lambda: path.read_bytes() if path.exists() else None)

    async def put(self, name: str, blob: bytes) -> None:
        def write() -> None:
            made = self._folder / f"{name}.{os.getpid()}.{id(blob)}"
            made.write_bytes(blob)
            made.replace(self._folder / name)

        await asyncio.to_thread(write)


class RedisShelf:
    def __init__(self, url: str) -> None:
        import redis.asyncio

        self.redis = redis.asyncio.from_url(url)

    async def get(self, name: str) -> bytes | None:
        found: Any = await self.redis.get(name)
        return found

    async def put(self, name: str, blob: bytes) -> None:
        await self.redis.set(name, blob)

    async def change_watched(self, name: str, change: Change) -> UsualModel:
        from redis.exceptions import WatchError

        async with self.redis.pipeline(transaction=True) as pipe:
            while True:
                try:
                    await pipe.watch(name)
                    model = _unpickled(await pipe.get(name))
                    change(model)
                    pipe.multi()
                    pipe.set(name, pickle.dumps(model))
                    await pipe.execute()
                except WatchError:
                    continue
                return model


def _unpickled(blob: Any) -> UsualModel:
    return UsualModel() if blob is None else pickle.loads(blob)


class Models:
    """This worker's models of one way, saved after every `saves` updates, 0 for never."""

    def __init__(self, shelf: Shelf, saves: int) -> None:
        self._shelf = shelf
        self._saves = saves
        self._here: dict[str, UsualModel] = {}
        self._unsaved = 0

    async def get(self, name: str) -> UsualModel:
        if self._saves == 1:
            return _unpickled(await self._shelf.get(name))
        if name not in self._here:
            read = _unpickled(await self._shelf.get(name)) if self._saves else UsualModel()
            self._here.setdefault(name, read)
        return self._here[name]

    async def change(self, name: str, change: Change) -> UsualModel:
        if name.startswith("watched") and isinstance(self._shelf, RedisShelf):
            return await self._shelf.change_watched(name, change)
        model = await self.get(name)
        change(model)
        self._unsaved += 1
        if self._saves and self._unsaved >= self._saves:
            self._unsaved = 0
            await self._shelf.put(name, pickle.dumps(model))
        return model


def _shelf(where: str) -> Shelf:
    return RedisShelf(where) if where.startswith("redis:") else FolderShelf(Path(where))


shelf = _shelf(os.environ.get("USUAL_STORE", "."))
ways = {
    name: Models(shelf, saves) for name, saves in (("memory", 0), ("snapshots", 100), ("pickled", 1), ("watched", 1))
}


# -- the routes -------------------------------------------------------------------------------------------------------

app = FastAPI()
Way = Literal["memory", "snapshots", "pickled", "watched"]


@app.get("/readyz")
async def readyz() -> dict[str, str]:
    return {"status": "ready"}


@app.post("/{way}/sessions/{session}/predict")
async def predict(way: Way, session: str, body: PredictIn) -> dict[str, Any]:
    model = await ways[way].get(f"{way}-{session}")
    return {"id": body.id, **model.predict(body.x)}


@app.post("/{way}/sessions/{session}/update")
async def update(way: Way, session: str, body: UpdateIn) -> dict[str, Any]:
    number = int(body.id.rpartition("-")[2])
    model = await ways[way].change(f"{way}-{session}", lambda model: model.learn(body.x, body.y, number))
    return {"id": body.id, "t": sum(model.learned)}


@app.get("/{way}/sessions/{session}")
async def inspect(way: Way, session: str) -> dict[str, Any]:
    """`t` is the number of updates that the model has learned, `times` how often it has learned each."""
    model = await ways[way].get(f"{way}-{session}")
    return {"t": sum(model.learned), "times": {number: n for number, n in enumerate(model.learned) if n}}
