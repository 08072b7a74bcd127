"""Checks by a learner that nobody disturbed: it learns the rounds that were kept, one after the other."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

import okl_core
from bench.history.attempts import Attempt, History, Violation
from bench.history.final import PROBES, FinalState
from bench.history.inputs import DIM, LEARNERS, input_of, truth_of
from bench.history.timeline import Fate, Timeline
from okl_core.losses import Loss

TOLERANCE = 1e-9


def check_forecasts(
    history: History, timelines: Mapping[str, Timeline], finals: Mapping[str, FinalState]
) -> Iterator[Violation]:
    """The forecasts at the end, those that were answered on the way, and the losses, are what that learner has."""
    kept: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in history.attempts:
        if attempt.is_answered and timelines[attempt.session].fate(attempt) is Fate.KEPT:
            kept[attempt.session].append(attempt)
    for session, final in finals.items():
        if not final.problem and -1 not in final.serials:
            yield from _check_session(history.kinds[session], kept[session], final)


def _check_session(kind: str, attempts: Sequence[Attempt], final: FinalState) -> Iterator[Violation]:
    asked: dict[int, list[Attempt]] = defaultdict(list)
    updated: dict[int, Attempt] = {}
    blocks: dict[int, tuple[float, Attempt]] = {}
    losses: dict[int, float] = {}
    for attempt in attempts:
        if attempt.predicted_t is not None:
            asked[attempt.predicted_t].append(attempt)
        if attempt.t is None or attempt.loss is None:
            continue
        losses |= dict.fromkeys(range(attempt.first_t + 1, attempt.t), 0.0) | {attempt.t: attempt.loss}
        if attempt.action == "rounds":
            blocks |= {attempt.first_t + 1 + i: (value, attempt) for i, value in enumerate(attempt.values)}
        else:
            updated[attempt.t] = attempt
    learner = okl_core.create({"kind": kind, "config": dict(LEARNERS[kind])}, dim=DIM)
    for t, serial in enumerate([*final.serials, None]):
        for attempt in asked[t]:
            assert attempt.asked is not None
            expected = learner.predict(np.array(input_of(attempt.asked))).value
            if attempt.value is None or abs(attempt.value - expected) > TOLERANCE:
                yield Violation("forecast", f"{attempt} was told {attempt.value} at t = {t}, and not {expected}")
        if serial is None:
            break
        played = learner.update(np.array(input_of(serial)), truth_of(serial)).forecast.value
        if t + 1 in blocks and abs(blocks[t + 1][0] - played) > TOLERANCE:
            value, attempt = blocks[t + 1]
            yield Violation("forecast", f"{attempt} was told {value} at t = {t}, and not {played}")
        if t + 1 in updated:
            yield from _check_loss(updated[t + 1], played, learner.loss, truth_of(serial))
    total = math.fsum(losses.values())
    if losses.keys() == set(range(1, len(final.serials) + 1)) and abs(total - final.loss) > TOLERANCE * max(1.0, total):
        yield Violation("loss", f"session {final.session}: {total} was told in all, its metrics say {final.loss}")
    values = [learner.predict(np.array(input_of(probe))).value for probe in PROBES]
    off = max((abs(a - b) for a, b in zip(values, final.values, strict=True)), default=0.0)
    if off > TOLERANCE:
        yield Violation(
            "forecast", f"session {final.session}: its forecasts are off by {off:.2g} from a replay of its rounds"
        )


def _check_loss(told: Attempt, played: float, loss: Loss, truth: float) -> Iterator[Violation]:
    """Of the forecast that was issued; of the one at play where none was."""
    given = played if told.given is None else told.given
    if told.loss is None or math.isnan(given):
        return
    expected = loss.value(given, truth)
    if abs(told.loss - expected) > TOLERANCE * max(1.0, expected):
        yield Violation("loss", f"{told} was told loss {told.loss} at t = {told.t}, and not {expected}")
