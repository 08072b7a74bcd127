"""What one builds in an afternoon: a River pipeline behind FastAPI, pickled to Redis after each update.

A prediction that waits for its truth is kept in the process; an update may also bring its input again. That is safe for one
worker. With REDIS_WATCH=1 it is safe for several: the model and the waiting inputs are read from Redis in each request, and
an update is a transaction that is tried again where another worker was first. With MODEL=vw it is Vowpal Wabbit's model.
"""

from __future__ import annotations

import math
import os
import pickle
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio as redis
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from river import compose, linear_model, preprocessing

models: dict[str, Any] = {}
rounds: dict[str, int] = {}
waiting: dict[str, list[float]] = {}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.redis = redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
    yield
    await app.state.redis.aclose()


app = FastAPI(lifespan=lifespan)


IS_WATCHED = os.environ.get("REDIS_WATCH") == "1"


async def load(session: str) -> Any:
    if session not in models:
        pickled = await app.state.redis.get(f"model:{session}")
        models[session], rounds[session] = pickle.loads(pickled) if pickled else (new_model(), 0)
    return models[session]


async def save(session: str) -> None:
    await app.state.redis.set(f"model:{session}", pickle.dumps((models[session], rounds[session])))


def new_model() -> Any:
    if os.environ.get("MODEL") == "vw":
        from bench.peers.models import VowpalWabbit

        return VowpalWabbit([False, True])
    return compose.Pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression())


class PredictIn(BaseModel):
    session: str
    x: list[float]


class PredictOut(BaseModel):
    session: str
    id: str
    t: int
    score: float
    label: int
    probability: float


class UpdateIn(BaseModel):
    session: str
    id: str | None = None
    x: list[float] | None = None
    y: int


class UpdateOut(BaseModel):
    session: str
    id: str | None
    t: int
    loss: float
    mistake: bool


@app.get("/healthz")
async def healthz() -> dict[str, str]:
    await app.state.redis.ping()
    return {"status": "ok"}


async def read(client: Any, session: str) -> tuple[Any, int]:
    pickled = await client.get(f"model:{session}")
    return pickle.loads(pickled) if pickled else (new_model(), 0)


@app.post("/predict")
async def predict(body: PredictIn) -> PredictOut:
    key = uuid.uuid4().hex
    if IS_WATCHED:
        model, t = await read(app.state.redis, body.session)
        await app.state.redis.set(f"waiting:{body.session}:{key}", pickle.dumps(body.x), ex=86_400)
    else:
        model = await load(body.session)
        t = rounds[body.session]
        waiting[key] = body.x
    p = positive(model, body.x)
    return PredictOut(
        session=body.session,
        id=key,
        t=t,
        score=math.log((p + 1e-15) / (1.0 - p + 1e-15)),
        label=1 if p >= 0.5 else -1,
        probability=p,
    )


@app.post("/update")
async def update(body: UpdateIn) -> UpdateOut:
    if IS_WATCHED:
        p, t = await update_watched(body)
    else:
        model = await load(body.session)
        x = body.x if body.x is not None else waiting.pop(body.id or "", None)
        p = learn(model, x, body.y)
        rounds[body.session] += 1
        t = rounds[body.session]
        await save(body.session)
    chance = p if body.y == 1 else 1.0 - p
    return UpdateOut(
        session=body.session, id=body.id, t=t, loss=-math.log(chance + 1e-15), mistake=(p >= 0.5) != (body.y == 1)
    )


def learn(model: Any, x: list[float] | None, y: int) -> float:
    if x is None:
        raise HTTPException(404, "no such prediction")
    p = positive(model, x)
    model.learn_one(dict(enumerate(x)), y == 1)
    return p


async def update_watched(body: UpdateIn) -> tuple[float, int]:
    """The probability at the state that was learned from, and the rounds learned."""
    key, held = f"model:{body.session}", f"waiting:{body.session}:{body.id}"
    async with app.state.redis.pipeline(transaction=True) as pipe:
        while True:
            try:
                await pipe.watch(key, held)
                model, t = await read(pipe, body.session)
                x = body.x
                if x is None:
                    pickled = await pipe.get(held)
                    x = pickle.loads(pickled) if pickled else None
                p = learn(model, x, body.y)
                pipe.multi()
                pipe.set(key, pickle.dumps((model, t + 1)))
                pipe.delete(held)
                await pipe.execute()
            except redis.WatchError:
                continue
            return p, t + 1


def positive(model: Any, x: list[float]) -> float:
    return float(model.predict_proba_one(dict(enumerate(x))).get(True, 0.5))
