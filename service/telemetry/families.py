"""All series: their names, types, labels and meanings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Family:
    """The series of one name; a counter's name gets the suffix `_total` in the output."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


def _of_a_worker(name: str, type: Literal["counter", "gauge", "histogram"], help: str, *labels: str) -> Family:
    return Family(name, type, ("worker", *labels), help)


def _of_a_session(name: str, type: Literal["counter", "gauge"], help: str) -> Family:
    return Family(name, type, ("session", "kind"), help)


WORKER_FAMILIES: Final = (
    _of_a_worker("okl_build_info", "gauge", "1; version of the worker and kind of its store.", "version", "store"),
    _of_a_worker("okl_worker_seen_timestamp_seconds", "gauge", "When the worker last published its metrics."),
    _of_a_worker("okl_worker_cpu_seconds", "counter", "Processor time of the worker's process."),
    _of_a_worker("okl_worker_memory_bytes", "gauge", "Memory of the worker's process (resident)."),
    _of_a_worker(
        "okl_request_seconds",
        "histogram",
        "Requests, and the time until their answer began.",
        "method",
        "route",
        "status",
    ),
    _of_a_worker("okl_open_requests", "gauge", "Requests in progress."),
    _of_a_worker(
        "okl_refused_requests", "counter", "Requests that were refused before they reached a route.", "problem"
    ),
    _of_a_worker("okl_problems", "counter", "Problem documents sent to clients.", "problem"),
    _of_a_worker("okl_queued_requests", "gauge", "Requests that wait for their turn at a session."),
    _of_a_worker("okl_streams", "gauge", "Streams of rounds that are open."),
    _of_a_worker("okl_event_streams", "gauge", "Streams of events that are open."),
    _of_a_worker("okl_loop_lag_seconds", "histogram", "Lag of the event loop, measured once a second."),
    _of_a_worker("okl_store_call_seconds", "histogram", "Calls to the store, and their duration.", "call"),
    _of_a_worker("okl_store_errors", "counter", "Calls to the store that failed.", "call"),
    _of_a_worker("okl_commits", "counter", "Commits of rounds or predictions that the store accepted."),
    _of_a_worker("okl_rounds", "counter", "Rounds that this worker committed."),
    _of_a_worker("okl_journal_entries", "counter", "Entries that this worker added to journals."),
    _of_a_worker("okl_commit_conflicts", "counter", "Commits refused because another worker was first."),
    _of_a_worker("okl_repeated_requests", "counter", "Duplicate truths, which were not learned again."),
    _of_a_worker("okl_unkept_predictions", "counter", "Predictions that found no room to wait."),
    _of_a_worker("okl_replays", "counter", "Times that a copy caught up with rounds that other workers wrote."),
    _of_a_worker("okl_replayed_rounds", "counter", "Rounds learned in replays."),
    _of_a_worker("okl_replay_seconds", "counter", "Time spent in replays, including the loading of snapshots."),
    _of_a_worker("okl_snapshots", "counter", "Snapshots written."),
    _of_a_worker("okl_snapshot_failures", "counter", "Snapshots that could not be written."),
    _of_a_worker("okl_snapshot_written_bytes", "counter", "Bytes of the snapshots written."),
    _of_a_worker("okl_snapshot_write_seconds", "counter", "Time spent writing snapshots."),
    _of_a_worker("okl_summaries", "counter", "Summaries of sessions written."),
    _of_a_worker("okl_summary_failures", "counter", "Summaries that could not be written."),
    _of_a_worker("okl_copies", "gauge", "Sessions of which this worker has a copy."),
    _of_a_worker("okl_copies_bytes", "gauge", "Approximate memory of these copies."),
    _of_a_worker("okl_waiting_limit", "gauge", "Most predictions of a session that may wait: OKL_MAX_WAITING."),
    _of_a_worker("okl_alarms_told", "counter", "Alarms that the webhook accepted."),
    _of_a_worker("okl_webhook_failures", "counter", "Deliveries that the webhook did not accept."),
    _of_a_worker("okl_challengers", "gauge", "Challengers that the worker knows of."),
    _of_a_worker("okl_followed_rounds", "counter", "Rounds of champions that challengers learned."),
    _of_a_worker("okl_follow_failures", "counter", "Times that a challenger could not continue."),
    _of_a_worker("okl_webhook_waiting", "gauge", "Sessions whose alarms wait for delivery."),
)
"""Families of the processes of one host; `worker` is the worker's number."""

STORE_FAMILIES: Final = (
    Family("okl_store_up", "gauge", (), "1 if the store's sessions could be read, else 0 and no series below."),
    Family("okl_sessions", "gauge", (), "Sessions in the store."),
    Family("okl_sessions_read", "gauge", (), "Sessions included in the totals below."),
    Family("okl_sessions_waiting", "gauge", (), "Waiting predictions of all sessions."),
    Family("okl_sessions_journal_bytes", "gauge", (), "Bytes of the journals of all sessions."),
    Family("okl_sessions_snapshot_bytes", "gauge", (), "Bytes of the snapshots of all sessions."),
    _of_a_session("okl_session_rounds", "counter", "Rounds."),
    _of_a_session("okl_session_loss", "counter", "Cumulative loss."),
    _of_a_session("okl_session_error", "gauge", "Mistake rate or RMSE of the last rounds."),
    _of_a_session(
        "okl_session_better",
        "gauge",
        "1 if it is surely better than the trivial forecasters, -1 if surely worse than the better of them, else 0.",
    ),
    _of_a_session("okl_session_coverage", "gauge", "Share of the last truths that lay in their interval or set."),
    _of_a_session("okl_session_waiting", "gauge", "Predictions that wait for their truth."),
    Family(
        "okl_session_waiting_older",
        "gauge",
        ("session", "kind", "seconds"),
        "Predictions that have waited for longer than this many seconds.",
    ),
    _of_a_session("okl_session_never_came", "counter", "Predictions that expired or were cancelled."),
    _of_a_session("okl_session_alarms", "counter", "Alarms raised."),
    _of_a_session("okl_session_learner_bytes", "gauge", "Memory of the learner."),
    _of_a_session("okl_session_journal_bytes", "gauge", "Bytes of the journal after the snapshot."),
    _of_a_session("okl_session_journal_rounds", "gauge", "Rounds after the snapshot."),
    _of_a_session("okl_session_snapshot_bytes", "gauge", "Bytes of the latest snapshot, 0 if there is none."),
    _of_a_session("okl_session_round_seconds", "gauge", "Mean duration of the last few rounds."),
    _of_a_session("okl_session_last_round_timestamp_seconds", "gauge", "When the last round was committed."),
)
"""Read from the store: the same from every worker."""


def type_for(accept: str) -> str:
    """The content type for an Accept header: OpenMetrics if it names that, else Prometheus' text."""
    return OPENMETRICS if "application/openmetrics-text" in accept else TEXT
