"""Time-uniform tests of whether a session beats a trivial forecaster and whether its error has risen."""

from okl_core.monitoring.bands import boundaries, boundary
from okl_core.monitoring.comparison import Comparison
from okl_core.monitoring.drift import DriftAlarm, Rise
from okl_core.monitoring.duel import Duel, Outcome
from okl_core.monitoring.plain import Plain, PlainClasses, PlainForecast, PlainNumbers
from okl_core.monitoring.thinned import Thinned
from okl_core.monitoring.verdict import Judgement, Verdict

__all__ = [
    "Comparison",
    "DriftAlarm",
    "Duel",
    "Judgement",
    "Outcome",
    "Plain",
    "PlainClasses",
    "PlainForecast",
    "PlainNumbers",
    "Rise",
    "Thinned",
    "Verdict",
    "boundaries",
    "boundary",
]
