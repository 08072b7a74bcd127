"""All series by name: what they are, which labels they have, what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Family:
    """Series of one name; a counter's name has `_total` behind it when it is told."""

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
    _of_a_worker("okl_worker_seen_timestamp_seconds", "gauge", "When the worker told its numbers last."),
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
    _of_a_worker("okl_open_requests", "gauge", "Requests that are answered now."),
    _of_a_worker("okl_refused_requests", "counter", "Requests that the guards refused.", "problem"),
    _of_a_worker("okl_problems", "counter", "Problem documents that clients were told.", "problem"),
    _of_a_worker("okl_queued_requests", "gauge", "Requests that wait for their turn at a session."),
    _of_a_worker("okl_streams", "gauge", "Streams of rounds that are open."),
    _of_a_worker("okl_event_streams", "gauge", "Streams of events that are open."),
    _of_a_worker("okl_loop_lag_seconds", "histogram", "How late the event loop was, looked at once a second."),
    _of_a_worker("okl_store_call_seconds", "histogram", "Calls of the store, and their time.", "call"),
    _of_a_worker("okl_store_errors", "counter", "Calls of the store that failed.", "call"),
    _of_a_worker("okl_commits", "counter", "Commits of rounds or predictions that the store took."),
    _of_a_worker("okl_rounds", "counter", "Rounds that this worker committed."),
    _of_a_worker("okl_journal_entries", "counter", "Entries that this worker added to journals."),
    _of_a_worker("okl_commit_conflicts", "counter", "Commits refused since another worker was first."),
    _of_a_worker("okl_repeated_requests", "counter", "Truths that were sent again and not learned again."),
    _of_a_worker("okl_unkept_predictions", "counter", "Predictions that found no room to wait."),
    _of_a_worker("okl_replays", "counter", "Times that a copy was brought to its session's tip by what others wrote."),
    _of_a_worker("okl_replayed_rounds", "counter", "Rounds that were learned so."),
    _of_a_worker("okl_replay_seconds", "counter", "Time that this took, snapshots loaded included."),
    _of_a_worker("okl_snapshots", "counter", "Snapshots written."),
    _of_a_worker("okl_snapshot_failures", "counter", "Snapshots that the store did not take."),
    _of_a_worker("okl_snapshot_written_bytes", "counter", "Their bytes."),
    _of_a_worker("okl_snapshot_write_seconds", "counter", "Time that writing them took."),
    _of_a_worker("okl_summaries", "counter", "Summaries of sessions written."),
    _of_a_worker("okl_summary_failures", "counter", "Summaries that the store did not take."),
    _of_a_worker("okl_copies", "gauge", "Sessions of which this worker has a copy."),
    _of_a_worker("okl_copies_bytes", "gauge", "Memory of these copies, about."),
    _of_a_worker("okl_waiting_limit", "gauge", "Predictions of a session that may wait: OKL_MAX_WAITING."),
    _of_a_worker("okl_alarms_told", "counter", "Alarms that the webhook took."),
    _of_a_worker("okl_webhook_failures", "counter", "Deliveries that the webhook did not take."),
    _of_a_worker("okl_challengers", "gauge", "Challengers that the worker knows of."),
    _of_a_worker("okl_followed_rounds", "counter", "Rounds of champions that challengers learned."),
    _of_a_worker("okl_follow_failures", "counter", "Times that a challenger could not go on."),
    _of_a_worker("okl_webhook_waiting", "gauge", "Sessions whose alarms wait for delivery."),
)
"""Of the processes of one host; `worker` is the worker's number."""

STORE_FAMILIES: Final = (
    Family("okl_store_up", "gauge", (), "1 if the store told its sessions, 0 if not: then nothing below is there."),
    Family("okl_sessions", "gauge", (), "Sessions in the store."),
    Family("okl_sessions_read", "gauge", (), "Sessions that the totals below are of."),
    Family("okl_sessions_waiting", "gauge", (), "Predictions of all sessions that wait for their truth."),
    Family("okl_sessions_journal_bytes", "gauge", (), "Journals of all sessions."),
    Family("okl_sessions_snapshot_bytes", "gauge", (), "Snapshots of all sessions."),
    _of_a_session("okl_session_rounds", "counter", "Rounds."),
    _of_a_session("okl_session_loss", "counter", "Cumulative loss."),
    _of_a_session("okl_session_error", "gauge", "Mistake rate or RMSE of the last rounds."),
    _of_a_session(
        "okl_session_better",
        "gauge",
        "1 if it beats the trivial forecasters for sure, -1 if it is worse than the better of them for sure, else 0.",
    ),
    _of_a_session("okl_session_coverage", "gauge", "Share of the last truths that their interval or set held."),
    _of_a_session("okl_session_waiting", "gauge", "Predictions that wait for their truth."),
    Family(
        "okl_session_waiting_older",
        "gauge",
        ("session", "kind", "seconds"),
        "Of these, the ones that have waited for longer than so many seconds.",
    ),
    _of_a_session("okl_session_never_came", "counter", "Predictions that expired or were cancelled."),
    _of_a_session("okl_session_alarms", "counter", "Alarms raised."),
    _of_a_session("okl_session_learner_bytes", "gauge", "Memory of the learner."),
    _of_a_session("okl_session_journal_bytes", "gauge", "Journal after the snapshot."),
    _of_a_session("okl_session_journal_rounds", "gauge", "Rounds after the snapshot."),
    _of_a_session("okl_session_snapshot_bytes", "gauge", "Latest snapshot, 0 if there is none."),
    _of_a_session("okl_session_round_seconds", "gauge", "Time that a round takes, the mean of the last few."),
    _of_a_session("okl_session_last_round_timestamp_seconds", "gauge", "When the last round was committed."),
)
"""Read from the store: the same from every worker."""


def type_for(accept: str) -> str:
    """What a client that accepts this is told: OpenMetrics if it names that, else Prometheus' text."""
    return OPENMETRICS if "application/openmetrics-text" in accept else TEXT
