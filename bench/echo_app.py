"""The floor: the two routes of a round in plain FastAPI, with nothing behind them."""

from __future__ import annotations

import uuid

from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class PredictIn(BaseModel):
    session: str
    x: list[float]


class PredictOut(BaseModel):
    session: str
    id: str
    t: int
    score: float
    label: int
    probability: float | None = None


class UpdateIn(BaseModel):
    session: str
    id: str
    y: int


class UpdateOut(BaseModel):
    session: str
    id: str
    t: int
    loss: float
    mistake: bool
    duplicate: bool


@app.get("/healthz")
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/predict")
async def predict(body: PredictIn) -> PredictOut:
    return PredictOut(session=body.session, id=uuid.uuid4().hex, t=0, score=0.0, label=1)


@app.post("/update")
async def update(body: UpdateIn) -> UpdateOut:
    return UpdateOut(session=body.session, id=body.id, t=1, loss=1.0, mistake=False, duplicate=False)
