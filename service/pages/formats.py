"""Format numbers and times for readers; an unknown value is a dash."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from okl.measures import MISTAKE_RATE

if TYPE_CHECKING:
    from markupsafe import Markup


UNKNOWN = "–"
LONGEST = 200
"""The most characters of a value that a table cell shows."""

_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Unescaped, those of a client's text would also turn the page's own words around."""

_BYTES = ("B", "KB", "MB", "GB", "TB")
_TIMES = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def number(value: float | None) -> str:
    """With four significant digits; large ones in full."""
    if value is None:
        return UNKNOWN
    if value == 0 or 1e-4 <= abs(value) < 1e3:
        return f"{value:.4g}"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.3e}"


def share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1%}".replace("%", " %")


def error(value: float | None, name: str | None) -> str:
    """A windowed error according to its name: a rate in per cent, an RMSE in the units of the truth."""
    return share(value) if name == MISTAKE_RATE else number(value)


def size(value: float | None) -> str:
    """Bytes, in powers of 1000."""
    if value is None:
        return UNKNOWN
    power = 0
    while value >= 1000 and power < len(_BYTES) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.0f} {_BYTES[power]}" if power == 0 or value >= 100 else f"{value:.1f} {_BYTES[power]}"


def duration(value: float | None) -> str:
    """Seconds, in the unit that fits."""
    if value is None:
        return UNKNOWN
    for unit, name in _TIMES:
        if value >= unit:
            scaled = value / unit
            return f"{scaled:.0f} {name}" if scaled >= 10 else f"{scaled:.1f} {name}".replace(".0 ", " ")
    return "0 s" if value <= 0 else f"{value:.1g} s"


def rate(value: float | None) -> str:
    """Rounds per second."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 0.1 or value == 0 else f"{value:.2g}"


def ago(value: float | None, now: float | None) -> str:
    if value is None or now is None:
        return UNKNOWN
    past = now - value
    return "now" if past < 1 else f"{duration(float(int(past)))} ago"


def until(value: float | None, now: float | None) -> str:
    if value is None or now is None:
        return UNKNOWN
    return f"in {duration(float(int(value - now)))}" if value - now >= 1 else "now"


def moment(value: float | None) -> str:
    """A time in ISO 8601, to the second; empty for a time out of range."""
    try:
        return "" if value is None else datetime.fromtimestamp(int(value), UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return ""


def when(value: float | None, now: float | None) -> Markup:
    """How long ago, as a `time` element. Not a template macro, which would be slow in a list with one per line."""
    from markupsafe import Markup

    if value is None:
        return Markup('<span class="none">never</span>')
    at = moment(value)
    return Markup(f'<time datetime="{at}" title="{at}">{ago(value, now)}</time>')


def span(low: float | None, high: float | None) -> str:
    """The label of a bin of durations."""
    if high is None:
        return f"over {duration(low)}"
    return f"under {duration(high)}" if not low else f"{duration(low)} to {duration(high)}"


def value(given: Any) -> str:
    """A JSON value on one line, truncated if it is long. A text is shown without quotes, unless it is empty; its
    characters that turn the direction of what follows are escaped."""
    # Each element of a list or object takes at least one character.
    if isinstance(given, list):
        given = given[:LONGEST]
    elif isinstance(given, dict):
        given = dict(islice(given.items(), LONGEST))
    text = given if isinstance(given, str) and given else json_line(given)
    return _straight(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")


def json_line(given: Any) -> str:
    return _straight(json.dumps(given, ensure_ascii=False))


def _straight(text: str) -> str:
    return _TURNS.sub(lambda found: f"\\u{ord(found[0]):x}", text)


def delayed(bin: dict[str, Any]) -> tuple[float | None, float | None, int]:
    """A bin of rounds by the delay of their truth."""
    return bin["start_s"], bin["end_s"], bin["rounds"]


def aged(bin: dict[str, Any]) -> tuple[float | None, float | None, int]:
    """A bin of waiting predictions by age."""
    return bin["start_s"], bin["end_s"], bin["predictions"]


def as_query(names: Sequence[str]) -> str:
    """The query string that selects these sessions."""
    return urlencode([("session", name) for name in names])


_FILTERS = (
    count,
    number,
    share,
    error,
    size,
    duration,
    rate,
    ago,
    until,
    when,
    moment,
    span,
    value,
    json_line,
    delayed,
    aged,
    as_query,
)
FILTERS = {one.__name__: one for one in _FILTERS}
"""The filters by the names that templates use."""
