"""Freezing: a new session that predicts as another did at some round, and learns nothing."""

from __future__ import annotations

from dataclasses import replace

from okl_core import FrozenLearner, freeze
from okl_core.contract.frozen import FreezeRule
from okl_core.errors import StateError
from okl_core.records.warmup import FIRST

from .played import FrozenFrom
from .session import Session


def freeze_session(session: Session, name: str, rule: FreezeRule) -> Session:
    """Return a session that predicts as `session` does now, or did before a round drawn uniformly, and learns nothing.

    The two share the learner. Raises StateError if there is nothing to freeze yet.
    """
    if isinstance(session.learner, FrozenLearner):
        raise StateError("it is frozen already")
    if rule == "uniform" and not session.definition.reservoir:
        raise StateError('it keeps no state to draw; create sessions with `"reservoir": true` for that')
    if session.learner is None:
        raise StateError("it has learned no round yet")
    if session.preparation is None:
        raise StateError(f"its learner is made after {FIRST} rounds, and {session.t} were learned")
    twin = Session(replace(session.definition, name=name, reservoir=False, template=None))
    twin.task, twin.spec, twin.fields, twin.warmup = session.task, session.spec, session.fields, None
    twin.preparation = session.preparation.copy()
    twin.learner = freeze(session.learner, rule)
    twin.coverage = None if session.coverage is None else session.coverage.copy()
    twin.frozen = FrozenFrom(session.definition.name, session.t, rule)
    return twin
