"""JSON pointers to places in a document, and errors that name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from okl.errors import InvalidConfig, InvalidInput
from okl.values import json_pointer
from okl_core.contract.wrong_fields import place


class WrongMember(ValueError):
    """Raised where a body is checked as a whole, for a member that does not go with the others."""

    def __init__(self, member: str, detail: str) -> None:
        super().__init__(detail)
        self.member = member


def pointer_in(document: Any, location: Sequence[str | int]) -> str:
    """The pointer to a pydantic location, without its union tags, which are not part of the document."""
    return json_pointer(place(document, location, may_lack_last=True))


def invalid(pointer: str, detail: str, kind: type[InvalidInput] = InvalidInput) -> InvalidInput:
    """An error at one place of a request; `pointer` is empty for the whole body."""
    return kind(f"{pointer or 'the body'}: {detail}", errors=[{"pointer": pointer, "detail": detail}])


def invalid_config(learner: dict[str, Any], wrong: Sequence[tuple[Sequence[str | int], str]]) -> InvalidConfig:
    """The error for (path, message) pairs about the learner of a new session."""
    errors = [{"pointer": "/learner" + pointer_in(learner, path), "detail": message} for path, message in wrong]
    return InvalidConfig("; ".join(f"{entry['pointer']}: {entry['detail']}" for entry in errors), errors=errors)
