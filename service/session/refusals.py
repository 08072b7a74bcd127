"""The library's errors of a round, turned into the service's."""

from __future__ import annotations

from okl.errors import (
    InvalidInput,
    NotFinite,
    NumericalFailure,
    ServiceError,
    SessionFollows,
    WrongDimension,
    WrongTruth,
)
from okl_core import errors as core

from ..pointers import invalid

_INPUT_ERRORS: dict[type[core.InputError], type[InvalidInput]] = {
    core.ShapeError: WrongDimension,
    core.NonFiniteError: NotFinite,
    core.LabelError: WrongTruth,
}


def session_follows(name: str) -> SessionFollows:
    """The error for a client's request that only a champion takes."""
    detail = f"Session {name!r} is a challenger: it answers nobody, and learns what its champion learns."
    return SessionFollows(detail, session=name)


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
            detail = f"{wrong['pointer']}: the rounds were refused, nothing changed: {error}"
            return NumericalFailure(detail, session=name, errors=[wrong])
        case _:
            return None
