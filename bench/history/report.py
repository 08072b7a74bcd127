"""What is printed of a run: counts, faults, and every violation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.history.attempts import Attempt, History, Violation
from bench.history.final import FinalState
from bench.history.service_level import outages
from bench.history.timeline import Fate, Timeline
from bench.history.verdict import timelines_of

TOLD = 6
"""Violations of one check that are told in full."""


def report(history: History, finals: Mapping[str, FinalState], violations: Sequence[Violation], again: str) -> str:
    return "\n".join([*_counts(history, finals), *_faults(history), *_verdict(violations, again)])


def save(history: History, folder: Path) -> None:
    """Every request of the run, one a line, to look at."""
    with (folder / "attempts.jsonl").open("w") as file:
        file.writelines(json.dumps(asdict(one)) + "\n" for one in history.attempts)


def _counts(history: History, finals: Mapping[str, FinalState]) -> Iterator[str]:
    answered = [one for one in history.attempts if one.is_answered]
    acknowledged = {serial for one in answered for serial in one.serials}
    kept = {serial for final in finals.values() for serial in final.serials}
    retried = sum(one.is_again for one in history.attempts)
    duplicates = sum(one.is_duplicate for one in answered)
    failed = len(history.attempts) - len(answered)
    lost = lost_by_cut(history, finals)
    unknown = {serial for one in history.attempts if one.may_have_run for serial in one.serials} - acknowledged
    yield (
        f"{history.store}, seed {history.seed}: {len(acknowledged)} rounds acknowledged in {history.seconds:.0f} s, "
        f"{len(kept)} in the store"
    )
    yield (
        f"  {len(history.attempts)} requests, {failed} failed, {retried} sent again, {duplicates} answered as duplicates, "
        f"{history.abandoned} abandoned, {len(unknown)} rounds unknown, {len(unknown & kept)} of them kept"
    )
    told = ", ".join(f"{count} by {kind}" for kind, count in lost.items()) or "0"
    yield f"  rounds acknowledged and lost, explained: {told}"
    if unmarked := _unmarked(answered):
        yield f"  {unmarked} answers to a request that was answered before said that they were the first"


def _unmarked(answered: Sequence[Attempt]) -> int:
    first: dict[tuple[str, int | None], Attempt] = {}
    found = 0
    for one in sorted(answered, key=lambda one: one.ended):
        if one.id is not None and one.serials:
            earlier = first.setdefault((one.id, one.t), one)
            found += earlier.ended < one.sent and not one.is_duplicate
    return found


def lost_by_cut(history: History, finals: Mapping[str, FinalState]) -> Mapping[str, int]:
    """Acknowledged rounds that are not there, by the cut that took them."""
    timelines = timelines_of(history)
    kept = {serial for final in finals.values() for serial in final.serials}
    latest = {serial: one for one in history.attempts if one.is_answered for serial in one.serials}
    found: dict[str, int] = {}
    for serial, attempt in latest.items():
        timeline = timelines[attempt.session]
        if serial not in kept and timeline.fate(attempt) is not Fate.KEPT:
            kind = _cut_of(timeline, attempt.ended)
            found[kind] = found.get(kind, 0) + 1
    return found


def _cut_of(timeline: Timeline, ended: float) -> str:
    return next((cut.kind for cut in timeline.cuts if cut.kept_until < ended and cut.end >= ended), "a cut")


def _faults(history: History) -> Iterator[str]:
    recreated = sum(cut.kind == "recreate" for cut in history.cuts)
    yield f"  {len(history.faults)} faults, {recreated} sessions deleted and made again; seconds without an answer:"
    yield f"  {'at s':>7} {'fault':<15} {'took':>6} {'longest':>8} {'median':>7} {'back':>6}  what"
    for one in outages(history):
        fault = one.fault
        yield (
            f"  {fault.start:7.1f} {fault.kind:<15} {fault.end - fault.start:6.1f} {one.longest:8.1f} {one.median:7.1f} "
            f"{one.back:6.1f}  {fault.detail}"
        )


def _verdict(violations: Sequence[Violation], again: str) -> Iterator[str]:
    if not violations:
        yield "All is well."
        return
    yield f"{len(violations)} violations; again with: {again}"
    told: Counter[str] = Counter()
    for one in violations:
        told[one.check] += 1
        if told[one.check] <= TOLD:
            yield f"  {one}"
    yield from (f"  {check}: {count} in all" for check, count in told.items() if count > TOLD)
