"""A worker's counters: plain numbers, updated while requests are served and read on demand."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets of all histograms; one more bucket is unbounded."""

Sample = tuple[str, list[str], float | list[float]]
"""A series without its worker: name, labels, value. A histogram's value has the bucket counts and then the sum."""


@final
class Histogram:
    """Counts of durations by bucket, and their sum."""

    __slots__ = ("buckets", "sum")

    def __init__(self) -> None:
        self.buckets = [0] * (len(SECONDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(SECONDS, seconds)] += 1
        self.sum += seconds


@final
@dataclass(slots=True, eq=False)
class Counts:
    """The counters of one worker. `gauges` returns current values by the names of their series."""

    requests: dict[tuple[str, str, int], Histogram] = field(default_factory=dict)
    """Seconds until the answer began, by method, route template and status class (status // 100)."""
    refused: dict[str, int] = field(default_factory=dict)
    """Requests that were refused before they reached a route, by problem."""
    problems: dict[str, int] = field(default_factory=dict)
    """Problem documents, including those of refused requests, by problem."""
    store: dict[str, Histogram] = field(default_factory=dict)
    """Durations of store calls, by call."""
    store_errors: dict[str, int] = field(default_factory=dict)
    loop_lag: Histogram = field(default_factory=Histogram)
    open_requests: int = 0
    commits: int = 0
    rounds: int = 0
    entries: int = 0
    conflicts: int = 0
    repeated: int = 0
    unkept: int = 0
    replays: int = 0
    replayed_rounds: int = 0
    replay_s: float = 0.0
    snapshots: int = 0
    snapshot_failures: int = 0
    snapshot_bytes: int = 0
    snapshot_s: float = 0.0
    summaries: int = 0
    summary_failures: int = 0
    alarms_told: int = 0
    webhook_failures: int = 0
    followed: int = 0
    follow_failures: int = 0
    gauges: Callable[[], Mapping[str, float]] = dict

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; `status` is 0 if the client disconnected before the answer."""
        key = (method, route, status // 100)
        found = self.requests.get(key)
        if found is None:
            found = self.requests[key] = Histogram()
        found.add(seconds)

    def called(self, call: str, seconds: float) -> None:
        """Count a store call."""
        found = self.store.get(call)
        if found is None:
            found = self.store[call] = Histogram()
        found.add(seconds)

    def samples(self) -> list[Sample]:
        """All samples. A series without labels other than the worker is reported as 0 before its first event."""
        found: list[Sample] = [(name, [], getattr(self, counter)) for name, counter in TOTALS.items()]
        found.append(("okl_open_requests", [], self.open_requests))
        found += [(name, [], value) for name, value in self.gauges().items()]
        found.append(_seconds("okl_loop_lag_seconds", [], self.loop_lag))
        for (method, route, hundreds), one in self.requests.items():
            status = f"{hundreds}xx" if hundreds else "none"
            found.append(_seconds("okl_request_seconds", [method, route, status], one))
        found += [_seconds("okl_store_call_seconds", [call], one) for call, one in self.store.items()]
        for name, label_counts in (
            ("okl_refused_requests", self.refused),
            ("okl_problems", self.problems),
            ("okl_store_errors", self.store_errors),
        ):
            found += [(name, [label], count) for label, count in label_counts.items()]
        return found


def _seconds(name: str, labels: Sequence[str], found: Histogram) -> Sample:
    return name, list(labels), [*found.buckets, found.sum]


TOTALS: Final = {
    "okl_commits": "commits",
    "okl_rounds": "rounds",
    "okl_journal_entries": "entries",
    "okl_commit_conflicts": "conflicts",
    "okl_repeated_requests": "repeated",
    "okl_unkept_predictions": "unkept",
    "okl_replays": "replays",
    "okl_replayed_rounds": "replayed_rounds",
    "okl_replay_seconds": "replay_s",
    "okl_snapshots": "snapshots",
    "okl_snapshot_failures": "snapshot_failures",
    "okl_snapshot_written_bytes": "snapshot_bytes",
    "okl_snapshot_write_seconds": "snapshot_s",
    "okl_summaries": "summaries",
    "okl_summary_failures": "summary_failures",
    "okl_alarms_told": "alarms_told",
    "okl_webhook_failures": "webhook_failures",
    "okl_followed_rounds": "followed",
    "okl_follow_failures": "follow_failures",
}
"""The counters without labels: the field of Counts by series."""
