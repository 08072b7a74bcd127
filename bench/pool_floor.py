"""What a round of a pool cannot do without, counted while the pool plays a stream: its experts rest and grow as it goes.

The counts are taken between stretches, before and after which the same experts play.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.floors import (
    Part,
    axpy,
    cosines,
    discount,
    exponentials,
    in_features,
    rank_one,
    row,
    solve,
    symmetric,
)
from bench.streams import Stream
from okl_core import create, parse_spec
from okl_core.pool.bank import Bank
from okl_core.pool.pool_config import PoolConfig
from okl_core.pool.resting import STRETCH

FORGOTTEN_EACH = 125
"""Rounds of a half-life of 500 after which a posterior is discounted."""


@dataclass
class Played:
    """Of one unit, in the pool's rounds so far; `members` are rounds of experts."""

    rounds: int = 0
    growing: int = 0
    """Rounds in which its budget was not used up: then the input has a leverage score."""
    points: int = 0
    """Stored points, summed over the rounds that it played."""
    members: int = 0
    forgetting: int = 0
    """Of `members`, those with a half-life."""


def pool_floor(config: Mapping[str, Any], stream: Stream) -> tuple[Part, ...]:
    """The parts of the experts that a pool has by default, and of their weights, each as often as the stream had it."""
    X, y = stream
    pool = create({"kind": "pool", "config": dict(config)}, X.shape[1])
    made = PoolConfig.model_validate(pool.spec.config)
    units, specs = made.team.units, made.all_experts()
    budgets = [getattr(parse_spec({"kind": one.kind, "config": one.config})[2], "budget", 0) for one in specs]
    played = [Played() for _ in units]
    for start in range(0, len(y), STRETCH):
        rows = slice(start, start + STRETCH)
        awake = pool.state()["awake"] if start else np.ones(len(specs))
        pool.run(X[rows], y[rows])
        state, rounds = pool.state(), len(y[rows])
        for i, (unit, count) in enumerate(zip(units, played, strict=True)):
            members = [specs[place] for place in unit.places if awake[place]]
            if not members:
                continue
            points = len(state[f"cells.{i}.embedding.points.rows"]) if isinstance(unit, Bank) else 0
            count.rounds += rounds
            count.growing += rounds * (points < budgets[unit.places[0]])
            count.points += rounds * points
            count.members += rounds * len(members)
            count.forgetting += rounds * sum("half_life" in expert.config for expert in members)
    banks = [count for unit, count in zip(units, played, strict=True) if isinstance(unit, Bank)]
    others = [count for unit, count in zip(units, played, strict=True) if not isinstance(unit, Bank)]
    share = float(np.mean([count.rounds / len(y) for count in others]))
    alone = (cosines(400), axpy(800, with_loss=True), *in_features(11), *in_features(12))
    dictionaries = [part for count in banks for part in _of_bank(count, len(y))]
    return (*dictionaries, *(part.at(share) for part in alone), exponentials(len(specs)))


def _of_bank(count: Played, rounds: int) -> Sequence[Part]:
    points, plays, members = round(count.points / count.rounds), count.rounds / rounds, count.members / rounds
    return (
        row(points).at(plays),
        solve(points, plays + count.growing / rounds),
        symmetric(points, members),
        rank_one(points, members, with_loss=True),
        axpy(points).at(members),
        discount(points, FORGOTTEN_EACH).at(count.forgetting / rounds),
    )
