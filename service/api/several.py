"""Requests to several sessions at once: predictions, truths, or steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from pydantic import ConfigDict, Field, model_validator
from starlette.types import Scope

from okl.errors import InvalidInput, PayloadTooLarge, ServiceError
from okl.values import Json

from ..keys import caller
from ..pointers import invalid
from ..session.requests import Updated
from .answers import Prediction, Problem, StepAnswer, Update, WireAnswer
from .problems import document_for, unexpected_document
from .round_schemas import StepRequest, Wait, Weight
from .values import Id, Input, KnownName, Scalar, Wire

T = TypeVar("T")


class PredictSeveral(Wire):
    """Ask several sessions for a prediction of the same input."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"sessions": ["price", "sold"], "x": [0.1, 0.7, 0.3], "id": "visit-1"}]}
    )

    sessions: list[KnownName] = Field(min_length=1, fail_fast=True, description="Their names, each once.")
    x: Input = Field(description="A list of numbers, or an object of named features.")
    id: Id | None = Field(default=None, description="The id of the prediction in each session; generated if omitted.")
    wait: Wait = True

    @model_validator(mode="after")
    def _waits_under_an_id(self) -> PredictSeveral:
        if self.id is not None and not self.wait:
            raise ValueError("`id` names predictions that wait; leave it out with `wait: false`")
        return self


class SessionTruth(Wire):
    """The truth of one session."""

    session: KnownName
    y: Scalar = Field(description="A label of the session, or a number.")
    weight: Weight = 1.0


class UpdateSeveral(Wire):
    """Report the truths of one input to several sessions: for predictions that wait under one `id`, or for the input `x`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"sessions": [{"session": "price", "y": 3.2}, {"session": "sold", "y": "yes"}], "id": "visit-1"}
            ]
        }
    )

    sessions: list[SessionTruth] = Field(min_length=1, fail_fast=True, description="Each session once.")
    id: Id | None = None
    x: Input | None = None


class StepSeveral(Wire):
    """Report truths to several sessions, and ask each of them for its next prediction."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "steps": [
                        {"session": "price", "update": {"id": "v1", "y": 3.2}, "predict": {"x": [0.1], "id": "v2"}},
                        {"session": "sold", "update": {"x": [0.4], "y": "yes"}, "predict": {"x": [0.5]}},
                    ]
                }
            ]
        }
    )

    steps: list[StepRequest] = Field(min_length=1, fail_fast=True, description="Each session once.")


class Refused(WireAnswer):
    """A session that refused its part of the request; the parts of the others were applied."""

    session: str
    refused: Problem


class Predictions(WireAnswer):
    """One entry per session, in the order of the request: its prediction, or why there is none."""

    predictions: list[Prediction | Refused]


class Updates(WireAnswer):
    """One entry per session, in the order of the request: its update, or why it was refused."""

    updates: list[Update | Refused]


class Steps(WireAnswer):
    """One entry per session, in the order of the request: its step, or why it was refused."""

    steps: list[StepAnswer | Refused]


def check_names(names: Sequence[str], most: int, member: str = "sessions") -> None:
    """Raises PayloadTooLarge for more than `most` sessions, InvalidInput for a session that is named twice."""
    if len(names) > most:
        raise PayloadTooLarge(f"There are more than {most} sessions; ask in several requests.", limit=most)
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name in seen:
            raise invalid(f"/{member}/{i}", f"must not repeat the session {name!r}")
        seen.add(name)


async def of_part(call: Awaitable[T], moved: Mapping[str, str]) -> T:
    """What the call for one session answers. The pointers of its errors that start with a key of `moved` are moved to where
    the session's part is in the whole body."""
    try:
        return await call
    except InvalidInput as error:
        for instead_of, prefix in moved.items():
            error = error.under(prefix, instead_of)
        raise error from None


async def of_each(
    names: Sequence[str], calls: Sequence[Awaitable[T]], encode: Callable[[T], Json], scope: Scope
) -> list[Json]:
    """The answers of all sessions, which are asked concurrently. A session's error takes the place of its answer."""
    answers: list[Json] = []
    async with caller.spending(len(names)) as bill:
        results = await asyncio.gather(*calls, return_exceptions=True)
        bill.waive(sum(map(_is_free, results)))
    for name, result in zip(names, results, strict=True):
        if isinstance(result, ServiceError):
            answers.append({"session": name, "refused": document_for(result, scope)})
        elif isinstance(result, Exception):
            answers.append({"session": name, "refused": unexpected_document(result, scope)})
        elif isinstance(result, BaseException):
            raise result
        else:
            answers.append(encode(result))
    return answers


def _is_free(result: object) -> bool:
    """Whether a session refused its part of the request, or had learned it before."""
    return isinstance(result, ServiceError) or (isinstance(result, Updated) and result.is_duplicate)
