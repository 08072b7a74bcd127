"""The condition that a request makes on the session's tip, as `If-Match` states it."""

from __future__ import annotations

from okl.errors import PreconditionFailed

from ..store.base import Tip

IfTip = frozenset[str] | None
"""The labels of the tips at which the session may be, ANYWHERE among them if it may be at any; None makes no condition."""

ANYWHERE = "*"


def precondition_failed(name: str, tip: Tip) -> PreconditionFailed:
    detail = f"Session {name!r} is at {tip.label}, not where `If-Match` says; inspect it and decide again."
    return PreconditionFailed(detail, session=name, etag=f'"{tip.label}"')


def check_tip(name: str, tip: Tip, if_tip: IfTip) -> None:
    """Raises PreconditionFailed unless the session may be at its tip."""
    if if_tip is not None and if_tip.isdisjoint((tip.label, ANYWHERE)):
        raise precondition_failed(name, tip)
