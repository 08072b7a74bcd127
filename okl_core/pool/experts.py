"""The experts of a pool at work: a list of units, each with its own random choices."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from okl_core.contract.learner import parse_spec
from okl_core.contract.rng import RoundRng
from okl_core.contract.state import pack, part_of
from okl_core.errors import NumericalError, StateFormatError
from okl_core.pool.bank import Bank, BankMember, member_of
from okl_core.pool.expert_specs import ExpertSpec
from okl_core.pool.units import Alone, Unit, UnitRound
from okl_core.types import F64, LearnerState, Stored

BLOCK = 512
"""Rounds that experts run at once. Their states are copied first, so that a failed block changes nothing."""


def units_of(experts: Sequence[ExpertSpec]) -> list[Unit[Any, Any]]:
    """Group the experts into units: banks of experts with the same dictionary and lags, then those that share nothing."""
    groups: list[tuple[int, list[tuple[int, str, BankMember]]]] = []
    alone: list[Alone] = []
    for i, expert in enumerate(experts):
        _, learner, config = parse_spec({"kind": expert.kind, "config": expert.config})
        member = member_of(learner, config)
        if member is None:
            alone.append(Alone(i, expert.lags, learner, config))
            continue
        key = expert.lags, member.space.embedding
        group = next((group for lags, group in groups if (lags, group[0][2].space.embedding) == key), None)
        if group is None:
            groups.append((expert.lags, group := []))
        group.append((i, learner.kind, member))
    banks: list[Unit[Any, Any]] = []
    for lags, group in groups:
        places, kinds, members = zip(*group, strict=True)
        banks.append(Bank(places, lags, ", ".join(dict.fromkeys(kinds)), members))
    return [*banks, *alone]


@final
class Cells(list[LearnerState]):
    """The state of each unit."""

    def pack(self) -> dict[str, Stored]:
        return {f"{i}.{name}": array for i, state in enumerate(self) for name, array in pack(state).items()}

    @classmethod
    def unpack_units(cls, units: Sequence[Unit[Any, Any]], arrays: Mapping[str, Stored], t: int) -> Cells:
        """Restore the cells of a pool after t rounds. Raise StateFormatError."""
        cells, used = cls(), 0
        for i, unit in enumerate(units):
            part = part_of(arrays, str(i))
            state = unit.unpack(part)
            if not 0 <= state.t <= t:
                raise StateFormatError(f"unit {i} of the pool has learned {state.t} rounds, the pool {t}")
            cells.append(state)
            used += len(part)
        if used != len(arrays):
            raise StateFormatError("the pool's state has arrays of experts that it does not have")
        return cells


class Player(NamedTuple):
    """A unit that plays."""

    i: int
    """Index of the unit."""
    unit: Unit[Any, Any]
    members: list[int]
    """The awake experts of the unit, by index in the unit."""
    places: list[int]
    """The same experts, by index in the pool."""


def _players(units: Sequence[Unit[Any, Any]], awake: F64) -> list[Player]:
    """Return the units with at least one awake expert."""
    plays, players = awake.tolist(), list[Player]()
    for i, unit in enumerate(units):
        members = [j for j, place in enumerate(unit.places) if plays[place]]
        if members:
            players.append(Player(i, unit, members, [unit.places[j] for j in members]))
    return players


@final
class Experts:
    """The units of a pool at work. All methods take the cells; only the last set of players is cached.

    `awake`, shape (N,), is 1.0 for an expert that plays, 0.0 for one that rests. `lags` are the last truths, newest first, as
    many as any expert takes.
    """

    def __init__(self, experts: Sequence[ExpertSpec], shape: tuple[int, ...]) -> None:
        """`shape` is the shape of an expert's forecast, () or (K,)."""
        self.count, self._shape = len(experts), shape
        self.width = self.count * math.prod(shape)
        """Numbers in all forecasts of a round."""
        self.names = tuple(expert.name(i) for i, expert in enumerate(experts))
        """Names shown to users."""
        self.lags = max(expert.lags for expert in experts)
        self.units = tuple(units_of(experts))
        self._played: tuple[bytes, list[Player]] = b"", []
        """The bytes of `awake` and the players for it, cached because they stay the same for many rounds."""
        self._streams = [f"unit-{i}" for i in range(len(self.units))]
        self.unit_of = np.empty(self.count, dtype=np.intp)
        """The unit that each expert belongs to, shape (N,)."""
        for i, unit in enumerate(self.units):
            self.unit_of[unit.places] = i

    def initial_bytes(self, dim: int) -> int:
        """Return a lower bound on the size of the experts' states."""
        return sum(unit.initial_bytes(dim + unit.lags) for unit in self.units)

    def conditioning(self, cells: Cells) -> F64:
        """Return the conditioning of every expert, shape (N,)."""
        conditioning = np.empty(self.count)
        for unit, state in zip(self.units, cells, strict=True):
            conditioning[unit.places] = unit.conditioning(state)
        return conditioning

    def extra_work(self, cells: Cells, rounds: int) -> float:
        """Sum the units' extra work, see `Learner.extra_work`; their expensive rounds may coincide."""
        return sum(unit.extra_work(state, rounds) for unit, state in zip(self.units, cells, strict=True))

    def init(self, dim: int) -> Cells:
        return Cells(unit.init(dim + unit.lags) for unit in self.units)

    def predict(self, cells: Cells, awake: F64, lags: F64, x: F64) -> F64:
        """Return the experts' forecasts for x, shape (N,) or (N, K), NaN for resting experts."""
        values = np.full((self.count, *self._shape), np.nan)
        for i, unit, members, places in self._players(awake):
            try:
                values[places] = unit.predict(cells[i], _with_lags(x, lags, unit.lags), members)
            except NumericalError as error:
                raise _named(unit, error) from error
        return values

    def play(
        self, cells: Cells, awake: F64, lags: F64, x: F64, y: float, t: int, rng: RoundRng
    ) -> tuple[F64, list[UnitRound | None]]:
        """Return the experts' forecasts, shape (N,) or (N, K), NaN at rest, and the units' rounds; the cells stay as is."""
        values = np.full((self.count, *self._shape), np.nan)
        rounds: list[UnitRound | None] = [None] * len(self.units)
        players = self._players(awake)
        forks = rng.begin_forks(self._parts(cells, players), t, 1)
        for (i, unit, members, places), coins in zip(players, forks, strict=True):
            try:
                played = unit.play(cells[i], _with_lags(x, lags, unit.lags), y, members, coins)
            except NumericalError as error:
                raise _named(unit, error) from error
            values[places] = played.values
            rounds[i] = played
        rng.end_forks(forks, t, 1)
        return values, rounds

    def learn(self, cells: Cells, rounds: Sequence[UnitRound | None]) -> None:
        """Learn played rounds."""
        for unit, state, played in zip(self.units, cells, rounds, strict=True):
            if played is not None:
                unit.learn(state, played)

    def run(self, cells: Cells, awake: F64, lags: F64, X: F64, y: F64, t: int, rng: RoundRng) -> F64:
        """Learn at most BLOCK rounds from t on; return the experts' forecasts, shape (n, N) or (n, N, K), NaN at rest.

        `lags` are those of each round, shape (n, k). On any error, such as NumericalError or ReplayDivergence, nothing has
        changed.
        """
        values = np.full((len(y), self.count, *self._shape), np.nan)
        players = self._players(awake)
        forks = rng.begin_forks(self._parts(cells, players), t, len(y))
        before = {player.i: copy.deepcopy(cells[player.i]) for player in players}
        try:
            for (i, unit, members, places), coins in zip(players, forks, strict=True):
                inputs = np.hstack((X, lags[:, : unit.lags])) if unit.lags else X
                try:
                    values[:, places] = unit.run(cells[i], inputs, y, members, coins)
                except NumericalError as error:
                    raise _named(unit, error) from error
            rng.end_forks(forks, t, len(y))
        except BaseException:
            # On any exception: experts at different rounds could never be synchronised again.
            for i, state in before.items():
                cells[i] = state
            raise
        return values

    def _players(self, awake: F64) -> list[Player]:
        key = awake.tobytes()
        cached, players = self._played
        if key != cached:
            players = _players(self.units, awake)
            # Assigned as one tuple, since learners with the same config may play in several threads.
            self._played = key, players
        return players

    def _parts(self, cells: Cells, players: Sequence[Player]) -> dict[str, int]:
        """Return the random stream of each playing unit, and the number of the unit's next round."""
        return {self._streams[player.i]: cells[player.i].t + 1 for player in players}

    def sizes(self, cells: Cells) -> tuple[int, int]:
        """Return the number of stored points and of bytes of all units."""
        sizes = [unit.size(state) for unit, state in zip(self.units, cells, strict=True)]
        return sum(points for points, _ in sizes), sum(nbytes for _, nbytes in sizes)


def _with_lags(x: F64, lags: F64, count: int) -> F64:
    return np.concatenate((x, lags[:count])) if count else x


def _named(unit: Unit[Any, Any], error: NumericalError) -> NumericalError:
    """Return the error with a message that names the experts it comes from."""
    what = "experts" if len(unit.places) > 1 else "expert"
    return type(error)(f"{what} {', '.join(map(str, unit.places))}, {unit.kinds}: {error}")
