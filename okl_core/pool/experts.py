"""The experts of a pool at work: units side by side, each with its lags and coins."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from okl_core.contract.lags import first_lags, lag_rows, next_lags
from okl_core.contract.learner import parse_spec
from okl_core.contract.rng import RoundRng
from okl_core.contract.state import pack
from okl_core.errors import NumericalError, StateFormatError
from okl_core.pool.bank import Bank, BankMember, member_of
from okl_core.pool.expert_specs import ExpertSpec
from okl_core.pool.units import Alone, Unit, UnitRound
from okl_core.types import F64, LearnerState

BLOCK = 512
"""Rounds that experts run at once: their states are copied before, so that a block that fails changes nothing."""


def units_of(experts: Sequence[ExpertSpec]) -> list[Unit[Any, Any]]:
    """The experts, those together that differ in nothing that a dictionary sees; then those that share nothing."""
    groups: list[tuple[int, list[tuple[int, str, BankMember]]]] = []
    alone: list[Alone] = []
    for i, expert in enumerate(experts):
        _, learner, config = parse_spec({"kind": expert.kind, "config": expert.config})
        member = member_of(learner, config)
        if member is None:
            alone.append(Alone(i, expert.lags, learner, config))
            continue
        seen = expert.lags, member.space.embedding
        group = next((group for lags, group in groups if (lags, group[0][2].space.embedding) == seen), None)
        if group is None:
            groups.append((expert.lags, group := []))
        group.append((i, learner.kind, member))
    banks: list[Unit[Any, Any]] = []
    for lags, group in groups:
        places, kinds, members = zip(*group, strict=True)
        banks.append(Bank(places, lags, ", ".join(dict.fromkeys(kinds)), members))
    return [*banks, *alone]


@dataclass(slots=True)
class Cell:
    """What a unit has learned, and the lags of its next round, shape (k,)."""

    state: LearnerState
    lags: F64


@final
class Cells(list[Cell]):
    """One of each unit."""

    def pack(self) -> dict[str, F64]:
        arrays: dict[str, F64] = {}
        for i, cell in enumerate(self):
            arrays |= {f"{i}.state.{name}": array for name, array in pack(cell.state).items()}
            arrays[f"{i}.lags"] = cell.lags.copy()
        return arrays

    @classmethod
    def unpack_units(cls, units: Sequence[Unit[Any, Any]], arrays: Mapping[str, F64], t: int) -> Cells:
        """The cells after t rounds. Raises StateFormatError."""
        cells, used = cls(), 0
        for i, unit in enumerate(units):
            prefix = f"{i}.state."
            own = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
            lags = arrays.get(f"{i}.lags")
            if lags is None or lags.shape != (unit.lags,):
                raise StateFormatError(f"the lags of unit {i} of the pool are missing, or not {unit.lags}")
            state = unit.unpack(own)
            if state.t > t:
                raise StateFormatError(f"unit {i} of the pool has learned {state.t} rounds, the pool {t}")
            cells.append(Cell(state, np.array(lags, dtype=np.float64)))
            used += len(own) + 1
        if used != len(arrays):
            raise StateFormatError("the pool's state has arrays of experts that it does not have")
        return cells


@final
class Experts:
    """The units of a pool at work. All methods take the cells; nothing is kept."""

    def __init__(self, experts: Sequence[ExpertSpec], shape: tuple[int, ...]) -> None:
        """`shape`: that of an expert's forecast, () or (K,)."""
        self.count, self._shape = len(experts), shape
        self.width = self.count * math.prod(shape)
        """Numbers that they forecast in a round."""
        self.names = tuple(expert.name(i) for i, expert in enumerate(experts))
        """What a user reads."""
        self.units = units_of(experts)
        self._streams = [f"unit-{i}" for i in range(len(self.units))]
        self._unit_of = np.empty(self.count, dtype=np.intp)
        for i, unit in enumerate(self.units):
            self._unit_of[unit.places] = i

    def initial_bytes(self, dim: int) -> int:
        """What the experts' states take at least."""
        return sum(unit.initial_bytes(dim + unit.lags) for unit in self.units)

    def conditioning(self, cells: Cells) -> F64:
        """That of every expert, shape (N,)."""
        found = np.empty(self.count)
        for unit, cell in zip(self.units, cells, strict=True):
            found[unit.places] = unit.conditioning(cell.state)
        return found

    def extra_work(self, cells: Cells, rounds: int) -> float:
        """As that of a learner; the long rounds of several may be the same one."""
        return sum(unit.extra_work(cell.state, rounds) for unit, cell in zip(self.units, cells, strict=True))

    def init(self, dim: int) -> Cells:
        return Cells(Cell(unit.init(dim + unit.lags), first_lags(unit.lags)) for unit in self.units)

    def weights(self, weights: F64) -> F64:
        """Those of the units, shape (units,), from those of the experts."""
        return np.asarray(np.bincount(self._unit_of, weights, len(self.units)), dtype=np.float64)

    def predict(self, cells: Cells, awake: F64, x: F64) -> F64:
        """The experts' forecasts for x, shape (N,) or (N, K), NaN from those at rest."""
        values = np.full((self.count, *self._shape), np.nan)
        for unit, cell, plays in zip(self.units, cells, awake.tolist(), strict=True):
            if plays:
                try:
                    values[unit.places] = unit.predict(cell.state, _with_lags(x, cell.lags))
                except NumericalError as error:
                    raise _named(unit, error) from error
        return values

    def play(
        self, cells: Cells, awake: F64, x: F64, y: float, t: int, rng: RoundRng
    ) -> tuple[F64, list[UnitRound | None]]:
        """The experts' forecasts, shape (N,) or (N, K), NaN from those at rest, and the units' rounds; changes nothing."""
        values = np.full((self.count, *self._shape), np.nan)
        rounds: list[UnitRound | None] = []
        coins = iter(forks := rng.begin_forks(self._parts(cells, awake), t, 1))
        for unit, cell, plays in zip(self.units, cells, awake.tolist(), strict=True):
            if not plays:
                rounds.append(None)
                continue
            try:
                played = unit.play(cell.state, _with_lags(x, cell.lags), y, next(coins))
            except NumericalError as error:
                raise _named(unit, error) from error
            values[unit.places] = played.values
            rounds.append(played)
        rng.end_forks(forks, t, 1)
        return values, rounds

    def learn(self, cells: Cells, rounds: Sequence[UnitRound | None], y: float) -> None:
        """Carry played rounds into the cells."""
        for unit, cell, played in zip(self.units, cells, rounds, strict=True):
            if played is not None:
                unit.learn(cell.state, played)
            if unit.lags:
                cell.lags = next_lags(cell.lags, y)

    def run(self, cells: Cells, awake: F64, X: F64, y: F64, t: int, rng: RoundRng) -> F64:
        """The experts' forecasts in at most BLOCK rounds from t on, shape (n, N) or (n, N, K), NaN from those at rest.

        If anything is raised, a NumericalError or a ReplayDivergence, nothing has changed.
        """
        values = np.full((len(y), self.count, *self._shape), np.nan)
        coins = iter(forks := rng.begin_forks(self._parts(cells, awake), t, len(y)))
        # What rests is not written to, but for its lags.
        before = [copy.deepcopy(cell) if awake[i] else copy.copy(cell) for i, cell in enumerate(cells)]
        try:
            for unit, cell, plays in zip(self.units, cells, awake.tolist(), strict=True):
                own = X
                if unit.lags:
                    lags = lag_rows(cell.lags, y)
                    own, cell.lags = np.hstack((X, lags[:-1])), lags[-1].copy()
                if plays:
                    try:
                        values[:, unit.places] = unit.run(cell.state, own, y, next(coins))
                    except NumericalError as error:
                        raise _named(unit, error) from error
            rng.end_forks(forks, t, len(y))
        except BaseException:
            # Whatever it is: experts at different rounds would never come together again.
            cells[:] = before
            raise
        return values

    def _parts(self, cells: Cells, awake: F64) -> dict[str, int]:
        """The coins of the units that play, and the number that their next round has for them."""
        playing = zip(self._streams, cells, awake.tolist(), strict=True)
        return {stream: cell.state.t + 1 for stream, cell, plays in playing if plays}

    def sizes(self, cells: Cells) -> tuple[int, int]:
        """Stored points and bytes of all units."""
        sizes = [unit.size(cell.state) for unit, cell in zip(self.units, cells, strict=True)]
        lags = sum(cell.lags.nbytes for cell in cells)
        return sum(points for points, _ in sizes), sum(nbytes for _, nbytes in sizes) + lags


def _with_lags(x: F64, lags: F64) -> F64:
    return np.concatenate((x, lags)) if len(lags) else x


def _named(unit: Unit[Any, Any], error: NumericalError) -> NumericalError:
    """An error of the arithmetic that says which expert's it is."""
    what = "experts" if len(unit.places) > 1 else "expert"
    return type(error)(f"{what} {', '.join(map(str, unit.places))}, {unit.kinds}: {error}")
