"""The library's errors of a round, turned into the service's."""

from __future__ import annotations

from okl.errors import (
    InvalidInput,
    NotFinite,
    NumericalFailure,
    PreconditionFailed,
    ServiceError,
    WrongDimension,
    WrongTruth,
)
from okl_core import errors as core

from ..store.base import Tip
from .inputs import invalid

_INPUT_ERRORS: dict[type[core.InputError], type[InvalidInput]] = {
    core.ShapeError: WrongDimension,
    core.NonFiniteError: NotFinite,
    core.LabelError: WrongTruth,
}

At = frozenset[str] | None
"""The labels of the tips at which the session may be, ANYWHERE among them if it may be at any; None makes no condition."""

ANYWHERE = "*"


def precondition_failed(name: str, tip: Tip) -> PreconditionFailed:
    detail = f"Session {name!r} is at {tip.label}, not where `If-Match` says; inspect it and decide again."
    return PreconditionFailed(detail, session=name, etag=f'"{tip.label}"')


def check_tip(name: str, tip: Tip, at: At) -> None:
    """Raises PreconditionFailed unless the session may be at its tip."""
    if at is not None and at.isdisjoint((tip.label, ANYWHERE)):
        raise precondition_failed(name, tip)


def refusal(error: core.OklError, name: str) -> ServiceError | None:
    """The service's error for a library error that refused a round; None if the request is not at fault."""
    match error:
        case core.InputError():
            where = f"/{error.field}" + ("" if error.index is None else f"/{error.index}")
            return invalid(where, str(error), _INPUT_ERRORS.get(type(error), InvalidInput))
        case core.ConfigError():
            # A config that turns out wrong only for these inputs.
            return invalid("/x", str(error), WrongDimension)
        case core.NumericalError():
            if error.index is None:
                return NumericalFailure(f"The round was refused, nothing changed: {error}", session=name)
            wrong = {"pointer": f"/{error.field}/{error.index}", "detail": str(error)}
            told = f"{wrong['pointer']}: the rounds were refused, nothing changed: {error}"
            return NumericalFailure(told, session=name, errors=[wrong])
        case _:
            return None
