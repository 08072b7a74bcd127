"""What one builds in an afternoon: a River pipeline behind FastAPI, pickled to Redis after each update.

A prediction that waits for its truth is kept in the process; an update may also bring its input again.
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


async def load(session: str) -> Any:
    if session not in models:
        pickled = await app.state.redis.get(f"model:{session}")
        models[session], rounds[session] = pickle.loads(pickled) if pickled else (new_model(), 0)
    return models[session]


async def save(session: str) -> None:
    await app.state.redis.set(f"model:{session}", pickle.dumps((models[session], rounds[session])))


def new_model() -> Any:
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


@app.post("/predict")
async def predict(body: PredictIn) -> PredictOut:
    model = await load(body.session)
    p = positive(model, body.x)
    key = uuid.uuid4().hex
    waiting[key] = body.x
    return PredictOut(
        session=body.session,
        id=key,
        t=rounds[body.session],
        score=math.log((p + 1e-15) / (1.0 - p + 1e-15)),
        label=1 if p >= 0.5 else -1,
        probability=p,
    )


@app.post("/update")
async def update(body: UpdateIn) -> UpdateOut:
    model = await load(body.session)
    x = body.x if body.x is not None else waiting.pop(body.id or "", None)
    if x is None:
        raise HTTPException(404, "no such prediction")
    p = positive(model, x)
    model.learn_one(dict(enumerate(x)), body.y == 1)
    rounds[body.session] += 1
    await save(body.session)
    chance = p if body.y == 1 else 1.0 - p
    return UpdateOut(
        session=body.session,
        id=body.id,
        t=rounds[body.session],
        loss=-math.log(chance + 1e-15),
        mistake=(p >= 0.5) != (body.y == 1),
    )


def positive(model: Any, x: list[float]) -> float:
    return float(model.predict_proba_one(dict(enumerate(x))).get(True, 0.5))
