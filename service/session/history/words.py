"""Verdicts and alarms in words."""

from __future__ import annotations

from okl.measures import error_name
from okl_core.monitoring.duel import Outcome
from okl_core.monitoring.verdict import LEVEL, Judgement

from .alarms import Alarm

_RIVALS = {"majority": "the majority", "mean": "the mean", "last-label": "the last label"}


def verdict_text(found: Judgement, *, is_classifier: bool) -> str:
    """Compare the learner with the better trivial forecaster in words, and say whether that is certain.

    Examples
    --------
    >>> verdict_text(Judgement(900, "majority", 0.58, "better", 0.1, 0.3), is_classifier=True)
    'beats the majority by 58 % (95 % sure)'
    """
    rival = "the last value" if found.rival == "last-label" and not is_classifier else _RIVALS[found.rival]
    if found.gain is None:
        return f"cannot beat {rival}, which has made no error so far"
    by, sure = f"{abs(found.gain):.0%}".replace("%", " %"), f"({LEVEL:.0%} sure)".replace("%", " %")
    if found.state == "better":
        return f"beats {rival} by {by} {sure}"
    if found.state == "worse":
        return f"is worse than {rival} by {by} {sure}"
    if by == "0 %":
        return f"as good as {rival} so far"
    return f"{by} {'better' if found.gain >= 0.0 else 'worse'} than {rival} so far, not sure yet"


def outcome_text(found: Outcome) -> str:
    """Compare a challenger with its champion in words, and say whether that is certain.

    Examples
    --------
    >>> outcome_text(Outcome(900, 0.1, 0.2, "better", 0.05, 0.15))
    'better than the champion (95 % sure)'
    """
    if found.state == "undecided":
        return "undecided: not sure yet which is better"
    return f"{found.state} than the champion ({LEVEL:.0%} sure)".replace("%", " %")


def alarm_text(alarm: Alarm, *, is_classifier: bool) -> str:
    """Describe an alarm in words.

    Examples
    --------
    >>> alarm_text(Alarm(2031, 0.0, "drift", 0.12, 0.61, 2004), is_classifier=True)
    'the mistake rate rose from 12 % to 61 % after round 2,004'
    """
    what = error_name(is_classifier=is_classifier)
    before, after = (
        f"{error:.1%}".replace(".0%", "%").replace("%", " %") if is_classifier else f"{error:.3g}"
        for error in (alarm.before, alarm.after)
    )
    if alarm.kind == "drift":
        return f"the {what} rose from {before} to {after} after round {alarm.since:,}"
    return f"the {what} of the last {alarm.t - alarm.since:,} rounds is {after}, above {before}"
