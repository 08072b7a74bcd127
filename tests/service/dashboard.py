"""Documents as the dashboard gets them, made up but of the right form, and the service with pages that show them."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

from fastapi import FastAPI

from okl.errors import SessionFailed, SessionNotFound, StoreUnavailable
from okl.values import Json
from service.app import create_app
from service.pages.routes import views_of
from service.pages.views import Views
from service.settings import Settings

NOW = 1_790_000_000.0
POINTS = 512
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{ 7 * 7 }}\u2028\x00"


def entry(name: str, *, draw: random.Random, t: int = 20_000, kind: str = "auto", is_rate: bool = True) -> Json:
    state, rival = draw.choice(("better", "worse", "undecided")), "majority" if is_rate else "mean"
    gain = draw.uniform(0.05, 0.6)
    text = {
        "better": f"beats the {rival} by {gain:.0%} (95 % sure)",
        "worse": f"is worse than the {rival} by {gain:.0%} (95 % sure)",
        "undecided": f"not yet told apart from the {rival}",
    }[state]
    level, line = 0.45, []
    for _ in range(32):
        level = max(0.04, level * 0.95 + draw.gauss(0.004, 0.02))
        line.append(level)
    alarm = {"t": t - 900, "at": NOW - 5_000, "kind": "drift", "text": "The error has risen from 0.11 to 0.34."}
    is_alarming = draw.random() < 0.2
    return {
        "name": name,
        "kind": kind,
        "t": t,
        "waiting": draw.randrange(400),
        "never_came": draw.randrange(30),
        "created_at": NOW - 90_000,
        "updated_at": NOW - draw.randrange(4_000),
        "bytes": draw.randrange(20_000, 9_000_000),
        "rate": draw.uniform(0.1, 40.0),
        "error_name": "mistake rate" if is_rate else "RMSE",
        "error": line[-1] if is_rate else line[-1] * 300,
        "verdict": {
            "text": text,
            "state": state,
            "rival": rival,
            "gain": gain,
            "low": gain - 0.02,
            "high": gain + 0.02,
        },
        "sparkline": line,
        "alarms": 2 if is_alarming else 0,
        "alarm": alarm if is_alarming else None,
    }


def fresh_entry(name: str) -> Json:
    nothing = dict.fromkeys(("updated_at", "rate", "error_name", "error", "verdict", "alarm"))
    base = {"name": name, "kind": "auto", "t": 0, "waiting": 0, "never_came": 0, "created_at": NOW, "bytes": 0}
    return base | nothing | {"sparkline": [], "alarms": 0}


def points(*, is_rate: bool, rounds: int, flip: int | None, has_pool: bool, has_interval: bool) -> Json:
    draw = random.Random(7 + has_pool)
    t = sorted({max(1, round(rounds * (i / POINTS) ** 0.9)) for i in range(1, POINTS + 1)})
    scale = 1.0 if is_rate else 180.0
    found: dict[str, list[Any]] = {"t": t}
    total, rival_total, before = 0.0, 0.0, 0
    for at in t:
        flipped = 0.25 * math.exp(-(at - flip) / 1500) if flip is not None and at > flip else 0.0
        error = scale * (0.11 + 0.3 * math.exp(-at / (2500 if has_pool else 1200)) + flipped + draw.gauss(0, 0.008))
        rival = scale * (0.34 + draw.gauss(0, 0.01))
        total, rival_total = total + (at - before) * error, rival_total + (at - before) * rival
        row = {
            "at": NOW - (rounds - at) * 0.08,
            "rounds": at - before,
            "loss": error * 2,
            "error": error,
            "window": 500,
            "window_loss": error * 2,
            "window_error": error,
            "window_rival_loss": rival * 2,
            "window_rival_error": rival,
            "total_loss": total * 2,
            "total_error": total / at,
            "total_rival_loss": rival_total * 2,
            "total_rival_error": rival_total / at,
            "coverage": 0.9 + draw.gauss(0, 0.012) if has_interval else None,
            "low": None if is_rate else -error * 1.6,
            "median": None if is_rate else draw.gauss(0, 4),
            "high": None if is_rate else error * 1.7,
            "dictionary": int(400 * (1 - math.exp(-at / 3000))),
            "bytes": int(60_000 + 1_900_000 * (1 - math.exp(-at / 3000))),
            "took_s": 4e-4 * (1 - math.exp(-at / 3000)) + 6e-5 + abs(draw.gauss(0, 1e-5)),
            "waiting": int(180 + 60 * math.sin(at / 900)),
            "never_came": at // 400,
            "late": at // 50,
            "delay_s": 900 + draw.gauss(0, 80),
            "regret": 14 * math.log1p(at / 50) if has_pool else None,
            "bound": 40 + 22 * math.log1p(at / 50) if has_pool else None,
        }
        before = at
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    return found


FIELDS = [
    {
        "name": "hour",
        "type": "number",
        "columns": [0, 1],
        "missing_as": 12.0,
        "tells_missing": True,
        "low": 0.0,
        "high": 23.0,
    },
    {
        "name": "carrier",
        "type": "category",
        "columns": [2, 3, 4, 5],
        "categories": ["AA", "DL", "UA"],
        "has_others": True,
    },
    {"name": "weekend", "type": "boolean", "columns": [6]},
    {"name": "note", "type": "text", "columns": list(range(7, 23))},
]


def detail(one: Json, *, is_rate: bool, labels: list[Any] | None, fields: list[Json], interval: float | None) -> Json:
    t, error = one["t"], one["error"]
    metrics = {"rounds": t, "loss": t * 0.4, "mean_loss": 0.4 if t else None, "window": min(t, 500), "window_loss": 0.4}
    if is_rate:
        metrics |= {"mistakes": t // 6, "mistake_rate": 0.16 if t else None, "window_mistake_rate": error}
    else:
        metrics |= {"rmse": 31.2 if t else None, "window_rmse": error}
    alarms = [
        {"t": 14_020, "at": NOW - 480, "kind": "drift", "text": "The error has risen.", "before": 0.11, "after": 0.34},
    ]
    return {
        **{
            name: one[name] for name in ("name", "kind", "t", "waiting", "created_at", "updated_at", "bytes", "verdict")
        },
        "learner": {"kind": one["kind"], "seed": 0, "lags": 0, "config": {}} if t else None,
        "settings": {"interval": interval},
        "labels": labels,
        "fields": fields if t else None,
        "dim": 23 if t else None,
        "warming_up": t < 500,
        "cautions": [],
        "frozen": None,
        "lags": None,
        "metrics": metrics,
        "describe": {"t": t, "dictionary": 400, "bytes": one["bytes"]},
        "etag": '"1-00000000000000000000000000000000"',
        "storage": {},
        "alarms": alarms if t and is_rate else [],
    }


def document(one: Json, *, is_rate: bool, has_pool: bool = False, interval: float | None = None) -> Json:
    draw = random.Random(one["name"])
    labels = ["on time", "late"] if is_rate else None
    session = detail(one, is_rate=is_rate, labels=labels, fields=FIELDS, interval=interval)
    edges = [0, 60, 300, 900, 3600, 14_400, 86_400, None]
    bins = list(pairwise(edges))
    past = []
    for i in range(50 if one["t"] else 0):
        x = {
            "hour": draw.randrange(24),
            "carrier": draw.choice(["AA", "DL", "UA"]),
            "weekend": draw.random() < 0.3,
            "note": "gate change",
        }
        row: Json = {
            "t": one["t"] - i,
            "id": f"f-{one['t'] - i}",
            "at": NOW - 7 * i,
            "x": x,
            "loss": draw.random(),
            "waited_s": draw.uniform(60, 9000),
            "duplicate_of": None,
        }
        truth = draw.choice(labels) if labels else draw.uniform(10, 300)
        guess = (truth if draw.random() < 0.85 else draw.choice(labels)) if labels else truth + draw.gauss(0, 20)
        row |= {"y": truth, "probability": draw.random() if labels else None}
        row |= {"label": guess, "mistake": guess != truth} if labels else {"value": guess, "error": guess - truth}
        past.append(row)
    history = None
    if one["t"]:
        names = [f"kernel-ridge sigma={2**k}" for k in range(-4, 6)]
        weights = [[1 / (1 + (i - 4) ** 2 * (1 + s / 40)) for s in range(100)] for i in range(10)]
        sums = [sum(column) for column in zip(*weights, strict=True)]
        weights = [[w / s for w, s in zip(row, sums, strict=True)] for row in weights]
        history = {
            "session": one["name"],
            "t": one["t"],
            "error_name": one["error_name"],
            "rival": "majority" if is_rate else "mean",
            "points": points(
                is_rate=is_rate,
                rounds=one["t"],
                flip=14_000 if is_rate else None,
                has_pool=has_pool,
                has_interval=interval is not None,
            ),
            "weights": {"t": [one["t"] * (s + 1) // 100 for s in range(100)], "names": names, "values": weights}
            if has_pool
            else None,
            "reliability": [
                {
                    "start": i / 10,
                    "end": (i + 1) / 10,
                    "rounds": 100 * i,
                    "forecast": (i + 0.5) / 10,
                    "happened": min(1.0, (i + 0.3) / 9.4),
                }
                for i in range(10)
            ]
            if is_rate
            else None,
            "delays": [
                {"start_s": low, "end_s": high, "rounds": many}
                for (low, high), many in zip(bins, (120, 800, 4200, 9100, 3800, 900, 60), strict=True)
            ],
            "alarms": session["alarms"],
        }
    ages = [
        {"start_s": low, "end_s": high, "predictions": many}
        for (low, high), many in zip(bins, (30, 42, 71, 25, 9, 2, 1), strict=True)
    ]
    waits = [
        {
            "id": f"w-{i}",
            "t": one["t"],
            "at": NOW - 100 * i,
            "expires_at": NOW + 90_000,
            "x": {"hour": i, "carrier": "DL"},
        }
        for i in range(20 if one["t"] else 0)
    ]
    waiting = {
        "predictions": waits,
        "next": None,
        "waiting": one["waiting"],
        "never_came": one["never_came"],
        "ages": ages,
    }
    return {"session": session, "history": history, "rounds": {"rounds": past}, "waiting": waiting, "now": NOW}


class MadeUp:
    """Sessions of every kind, and `many` more."""

    def __init__(self, many: int = 0) -> None:
        draw = random.Random(1)
        self.documents: dict[str, Json] = {}
        self.entries: list[Json] = []
        for name, is_rate, has_pool, interval in (
            ("flights", True, False, None),
            ("demand", False, False, 0.9),
            ("mixture", False, True, 0.9),
        ):
            one = entry(name, draw=draw, kind="pool" if has_pool else "auto", is_rate=is_rate)
            self.add(one, document(one, is_rate=is_rate, has_pool=has_pool, interval=interval))
        fresh = fresh_entry("fresh")
        self.add(fresh, document(fresh, is_rate=True))
        self.entries.append(fresh_entry("broken") | {"t": 812, "kind": "kons"})
        self.entries += [entry(f"stream-{i:04d}", draw=draw, is_rate=i % 3 > 0) for i in range(many)]
        self.entries.sort(key=lambda one: one["name"])
        self.failure: Exception | None = None

    def add(self, one: Json, told: Json) -> None:
        self.entries.append(one)
        self.documents[one["name"]] = told

    async def index(self, cursor: str | None, limit: int) -> Json:
        self._check()
        left = [one for one in self.entries if cursor is None or one["name"] > cursor]
        following = left[limit - 1]["name"] if len(left) > limit else None
        return {"sessions": left[:limit], "next": following, "total": len(self.entries), "now": NOW}

    async def session(self, name: str) -> Json:
        self._check()
        if name == "broken":
            raise SessionFailed("Round 813 does not replay.")
        if name not in self.documents:
            raise SessionNotFound(name)
        return self.documents[name]

    async def compare(self, names: list[str]) -> Json:
        found = []
        for name in names:
            history = (await self.session(name))["history"]
            one = next(one for one in self.entries if one["name"] == name)
            found.append(one | {"points": history and history["points"]})
        return {"sessions": found, "now": NOW}

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure


def store_is_away() -> Exception:
    return StoreUnavailable("The store does not answer.")


def app_of(views: Views, settings: Settings | None = None) -> FastAPI:
    app = create_app(settings or Settings(store="sqlite://"))
    app.dependency_overrides[views_of] = lambda: views
    return app
