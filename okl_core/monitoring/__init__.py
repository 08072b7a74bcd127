"""Is a session better than a plain forecaster, and has its error risen? Answers that hold at all times together."""

from okl_core.monitoring.bands import boundaries, boundary
from okl_core.monitoring.comparison import Comparison
from okl_core.monitoring.drift import Alarm, DriftAlarm
from okl_core.monitoring.plain import Plain, PlainClasses, PlainForecast, PlainNumbers
from okl_core.monitoring.thinned import Thinned
from okl_core.monitoring.verdict import Told, Verdict

__all__ = [
    "Alarm",
    "Comparison",
    "DriftAlarm",
    "Plain",
    "PlainClasses",
    "PlainForecast",
    "PlainNumbers",
    "Thinned",
    "Told",
    "Verdict",
    "boundaries",
    "boundary",
]
