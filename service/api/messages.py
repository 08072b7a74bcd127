"""The messages of a stream: parsing them, turning them into session requests, and encoding the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidationError
from starlette.types import Scope

from okl.errors import MalformedBody, PayloadTooLarge, ServiceError

from ..rounds import Rounds
from ..session.requests import Answers, Part, Predicted, Stepped, Updated, as_result, halves
from . import wire
from .lines import as_array
from .problems import validation_problem
from .round_schemas import NamedUpdate, PredictBody, StepBody, UpdateBody
from .slices import COUNTED_BYTES, MAX_OPENED, BodyLimits, elements_of, opened_in

AT_ONCE_BYTES: Final = 64 << 10
"""An array of at most so many bytes is parsed as a whole, in half of the time that its messages take one by one."""

Message = PredictBody | UpdateBody | StepBody
Read = Message | ServiceError
"""A message, or the error that it was refused with."""

MODELS: Final = {"<predict>": PredictBody, "<update>": UpdateBody, "<step>": StepBody}


def _kind(value: Any) -> str:
    """The tag of a message, from its members. Tags never appear in an error's pointer."""
    if isinstance(value, dict):
        if "update" in value or "predict" in value:
            return "<step>"
        if "y" in value:
            return "<update>"
    return "<predict>"


_Message = Annotated[
    Annotated[PredictBody, Tag("<predict>")]
    | Annotated[NamedUpdate, Tag("<update>")]
    | Annotated[StepBody, Tag("<step>")],
    Discriminator(_kind),
]
_ONE: TypeAdapter[Message] = TypeAdapter(_Message)
# Stop at the first invalid message: collecting the errors of half a million takes half a second.
_MANY: TypeAdapter[list[Message]] = TypeAdapter(Annotated[list[_Message], Field(fail_fast=True)])


def read_one(data: bytes, limits: BodyLimits) -> Read:
    """Parse one JSON message."""
    try:
        limits.check_values(data)
        return _ONE.validate_json(data)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        model = MODELS.get(str(found[0]["loc"][0]) if found[0]["loc"] else "", PredictBody)
        return validation_problem(error, model)
    except PayloadTooLarge as error:
        return error


def read_array(data: bytes, most: int, limits: BodyLimits) -> list[Read]:
    """Parse a JSON array of at most `most` messages. Raises MalformedBody, PayloadTooLarge."""
    if opened_in(data) > MAX_OPENED:
        raise PayloadTooLarge(f"The message has more than {MAX_OPENED} arrays and objects.", limit=MAX_OPENED)
    if len(data) <= AT_ONCE_BYTES:
        try:
            found = _MANY.validate_json(data)
        except ValidationError:
            pass  # the invalid ones are found one by one
        else:
            if len(found) > most:
                raise _too_many(most)
            return list(found)
    # One parse of a megabyte is long enough: parsing all, and then each for the sake of a wrong one, would be two.
    texts = elements_of(data, most)
    if texts is None:
        raise MalformedBody("The message is not JSON: it is no complete array.")
    if len(texts) > most:
        raise _too_many(most)
    return [read_one(text, limits) for text in texts]


def _too_many(most: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"There are more than {most} messages in one array; send several.", limit=most)


def read_lines(lines: Sequence[bytes], limits: BodyLimits) -> list[Read]:
    """Parse one message per line."""
    array = as_array(lines) if len(lines) > 1 and max(map(len, lines)) <= COUNTED_BYTES else None
    if array is not None:
        try:
            found = _MANY.validate_json(array)
        except ValidationError:
            pass
        else:
            if len(found) == len(lines):
                return list(found)
    return [read_one(line, limits) for line in lines]


def asked_of(message: Message, rounds: Rounds, scope: Scope) -> tuple[Sequence[Part], Callable[[Answers], Any]]:
    """The parts that the message asks of its session, and a function that encodes the session's answers.

    The function raises the ServiceError with which the session refused a part.
    """
    match message:
        case PredictBody():
            question = rounds.question(message.x, message.id, message.wait)
            return [question], lambda results: wire.prediction(as_result(Predicted, results[0]))
        case UpdateBody():
            return [wire.report_of(message, message.id)], lambda results: wire.update(as_result(Updated, results[0]))
        case StepBody(update=update, predict=predict):
            question = rounds.question(predict.x, predict.id, predict.wait)
            return halves(wire.report_of(update, update.id), question), lambda results: wire.step(
                Stepped.of(results), scope
            )
