"""Planted faults: each alters a history that is well in one place, and the checks must find it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from bench.history.attempts import Attempt, History
from bench.history.final import FinalState
from bench.history.timeline import Fate
from bench.history.verdict import timelines_of

Finals = Mapping[str, FinalState]


def _session(finals: Finals, dice: Random) -> FinalState:
    return dice.choice([final for final in finals.values() if len(final.serials) > 4])


def _lose(history: History, finals: Finals, dice: Random) -> str:
    """A round that was acknowledged is not there, and the rounds after it have moved up."""
    final = _session(finals, dice)
    timeline = timelines_of(history)[final.session]
    kept = {
        serial
        for one in history.attempts
        if one.session == final.session and one.is_answered and timeline.fate(one) is Fate.KEPT
        for serial in one.serials
    }
    serials = list(final.serials)
    lost = dice.choice([serial for serial in serials if serial in kept])
    serials.remove(lost)
    final.serials, final.t, final.rounds = serials, final.t - 1, final.rounds - 1
    return f"session {final.session} has lost round {lost}"


def _twice(history: History, finals: Finals, dice: Random) -> str:
    """A round was learned once more, at the end."""
    final = _session(finals, dice)
    again = dice.choice(list(final.serials))
    final.serials = [*final.serials, again]
    final.t, final.rounds = final.t + 1, final.rounds + 1
    return f"session {final.session} has learned round {again} twice"


def _reorder(history: History, finals: Finals, dice: Random) -> str:
    """Two neighbours have changed places."""
    final = _session(finals, dice)
    at = dice.randrange(len(final.serials) - 1)
    serials = list(final.serials)
    serials[at : at + 2] = serials[at + 1], serials[at]
    final.serials = serials
    return f"session {final.session} has rounds {serials[at + 1]} and {serials[at]} in the wrong order"


def _stale(history: History, finals: Finals, dice: Random) -> str:
    """A prediction was answered from a state that was older than what was acknowledged before it was asked."""
    timelines = timelines_of(history)

    def earlier(one: Attempt) -> list[Attempt]:
        return [
            other
            for other in history.attempts
            if other.session == one.session
            and other.is_answered
            and (other.t or 0) > 1
            and other.ended < one.sent
            and timelines[one.session].epoch(other) == timelines[one.session].epoch(one) is not None
        ]

    predictions = [one for one in history.attempts if one.action == "predict" and one.is_answered and not one.is_again]
    dice.shuffle(predictions)
    chosen, before = next((one, found) for one in predictions if (found := earlier(one)))
    told = max(other.t or 0 for other in before) - 1
    history.attempts[history.attempts.index(chosen)] = replace(chosen, predicted_t=told)
    return f"{chosen} was told t = {told}"


PLANTS: Mapping[str, Callable[[History, Finals, Random], str]] = {
    "lose": _lose,
    "twice": _twice,
    "reorder": _reorder,
    "stale": _stale,
}
"""Each says what it has done."""


def plant(name: str, history: History, finals: Finals) -> str:
    return PLANTS[name](history, finals, Random(history.seed))
