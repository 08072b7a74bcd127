"""The experts of a pool: what they are, how they run side by side, and what they share."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from okl_core.contract.lags import MAX_LAGS, first_lags, lag_rows, next_lags
from okl_core.contract.learner import Learner, parse_spec, require_dims, taken_dim
from okl_core.contract.rng import RoundRng
from okl_core.contract.state import pack
from okl_core.errors import ConfigError, NumericalError, StateFormatError
from okl_core.pool.bank import Bank, BankState, BankTurn, MemberConfig
from okl_core.types import F64, LearnerConfig, LearnerState, Round

BLOCK = 512
"""Rounds that experts run at once: their states are copied before, so that a block that fails changes nothing."""

Truth = Literal["labels", "numbers"]


class ExpertSpec(BaseModel):
    """A learner in a pool, or, with `sigmas`, one with a Gaussian kernel of each of these length scales."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    kind: str = Field(description="Wire name of the learner; not pool.")
    config: dict[str, Any] = Field(default_factory=dict, description="Its parameters.")
    lags: int = Field(default=0, ge=0, le=MAX_LAGS, description="Past truths that it is given beside the input.")
    sigmas: list[float] | None = Field(
        default=None, min_length=1, fail_fast=True, description="A grid of length scales."
    )

    @model_validator(mode="after")
    def _is_a_learner(self) -> Self:
        if self.kind == "pool":
            raise ValueError("a pool is no expert of a pool")
        if self.sigmas is not None and "kernel" in self.config:
            raise ValueError("give either sigmas, of Gaussian kernels, or a kernel in the config")
        for expert in self.expand():
            try:
                _, _, config = parse_spec({"kind": expert.kind, "config": expert.config, "lags": expert.lags})
            except ConfigError as error:
                # As a ValueError it is told with the expert's place in the list.
                raise ValueError(str(error)) from error
            for path, word in config.waiting():
                raise ValueError(f'an expert sees no data before the first round: give {path[-1]} itself, not "{word}"')
        return self

    def name(self, i: int) -> str:
        """A name for the i-th expert of a pool."""
        sigma = self.config.get("kernel", {}).get("sigma")
        scale = f"_sigma_{sigma:g}" if isinstance(sigma, float | int) else ""
        return f"{i}_{self.kind}{scale}" + (f"_lags_{self.lags}" if self.lags else "")

    @property
    def dim(self) -> int | None:
        """The only number of inputs that it takes, its lags apart; None: any."""
        _, learner, config = parse_spec({"kind": self.kind, "config": self.config})
        dim = taken_dim(learner, config)
        return None if dim is None else dim - self.lags

    def expand(self) -> list[ExpertSpec]:
        """One expert each."""
        if self.sigmas is None:
            return [self]
        kernels = [{"kind": "gaussian", "sigma": sigma} for sigma in self.sigmas]
        return [
            ExpertSpec(kind=self.kind, config=self.config | {"kernel": kernel}, lags=self.lags) for kernel in kernels
        ]


def trivial_experts(truth: Truth) -> list[ExpertSpec]:
    return [ExpertSpec(kind="majority" if truth == "labels" else "mean"), ExpertSpec(kind="last-label")]


def default_experts(truth: Truth, clip: float) -> list[ExpertSpec]:
    """Kernel and linear, first- and second-order, with and without forgetting and lags."""
    loss = "squared-hinge" if truth == "labels" else "squared"
    newton: dict[str, Any] = {"loss": loss, "clip": 2.0 * clip}
    forgetful = newton | {"half_life": 500}
    first_order: dict[str, Any] = {"loss": "hinge"} if truth == "labels" else {"loss": "squared", "clip": clip}
    linear = newton | {"step": "adaptive", "regularization": 0.1}
    return [
        ExpertSpec(kind="pros-n-kons", config=newton, sigmas=[0.5, 1.0, 2.0, 4.0, 8.0]),
        ExpertSpec(kind="pros-n-kons", config=forgetful, sigmas=[0.5, 2.0]),
        ExpertSpec(kind="pros-n-kons", config=forgetful, lags=1, sigmas=[0.5, 1.0, 2.0]),
        ExpertSpec(kind="fogd", config=first_order, sigmas=[1.0]),
        ExpertSpec(kind="ons", config=linear),
        ExpertSpec(kind="ons", config=linear, lags=1),
    ]


class Unit(NamedTuple):
    """One expert on its own, or several that share a dictionary. `experts` are their places in the pool."""

    experts: tuple[int, ...]
    lags: int
    bank: Bank | None
    learner: Learner[Any, Any, Any] | None
    config: LearnerConfig | None


def units_of(experts: Sequence[ExpertSpec]) -> list[Unit]:
    """The experts, those together that differ in nothing that the dictionary sees."""
    shared: dict[str, list[int]] = {}
    units: list[Unit] = []
    members: dict[int, MemberConfig] = {}
    for i, expert in enumerate(experts):
        _, learner, config = parse_spec({"kind": expert.kind, "config": expert.config})
        if expert.kind == "pros-n-kons" and getattr(config, "carry", None) == "transport":
            members[i] = MemberConfig.model_validate(config.model_dump())
            seen = members[i].model_dump(include={"kernel", "dictionary", "budget"})
            shared.setdefault(json.dumps([expert.lags, seen], sort_keys=True), []).append(i)
        else:
            units.append(Unit((i,), expert.lags, None, learner, config))
    banks = [
        Unit(tuple(group), experts[group[0]].lags, Bank([members[i] for i in group]), None, None)
        for group in shared.values()
    ]
    return banks + units


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
    def unpack_units(cls, units: Sequence[Unit], arrays: Mapping[str, F64], t: int) -> Cells:
        """The cells after t rounds. Raises StateFormatError."""
        cells, used = cls(), 0
        for i, unit in enumerate(units):
            prefix = f"{i}.state."
            own = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
            lags = arrays.get(f"{i}.lags")
            if lags is None or lags.shape != (unit.lags,):
                raise StateFormatError(f"the lags of unit {i} of the pool are missing, or not {unit.lags}")
            state = unit.bank.unpack(own) if unit.bank is not None else _of(unit.learner).unpack(unit.config, own)
            if state.t != t:
                raise StateFormatError(f"unit {i} of the pool has learned {state.t} rounds, the pool {t}")
            cells.append(Cell(state, np.array(lags, dtype=np.float64)))
            used += len(own) + 1
        if used != len(arrays):
            raise StateFormatError("the pool's state has arrays of experts that it does not have")
        return cells


class UnitTurn(NamedTuple):
    """A unit's round, played but not learned."""

    played: BankTurn | Round
    values: list[float]


@final
class Experts:
    """The units of a pool at work. All methods take the cells; nothing is kept."""

    def __init__(self, experts: Sequence[ExpertSpec]) -> None:
        self.count = len(experts)
        self.names = [expert.name(i) for i, expert in enumerate(experts)]
        """What a user reads."""
        self.units = units_of(experts)
        self._streams = [f"unit-{i}" for i in range(len(self.units))]

    def initial_bytes(self, dim: int) -> int:
        """Those of the experts that share nothing."""
        alone = [(_of(unit.learner), unit) for unit in self.units if unit.bank is None]
        return sum(learner.initial_bytes(unit.config, dim + unit.lags) for learner, unit in alone)

    def conditioning(self, cells: Cells) -> F64:
        """That of every expert, shape (N,)."""
        found = np.empty(self.count)
        for unit, cell in zip(self.units, cells, strict=True):
            if unit.bank is not None:
                found[list(unit.experts)] = unit.bank.conditioning(_bank(cell))
            else:
                found[unit.experts[0]] = _of(unit.learner).conditioning(unit.config, cell.state)
        return found

    def extra_work(self, cells: Cells, rounds: int) -> float:
        """As that of a learner; the long rounds of several may be the same one."""
        total = 0.0
        for unit, cell in zip(self.units, cells, strict=True):
            if unit.bank is not None:
                total += unit.bank.extra_work(_bank(cell), rounds)
            else:
                total += _of(unit.learner).extra_work(unit.config, cell.state, rounds)
        return total

    def init(self, dim: int) -> Cells:
        cells = Cells()
        for unit in self.units:
            width = dim + unit.lags
            if unit.learner is not None:
                require_dims(unit.learner, width)
            state = unit.bank.init(width) if unit.bank is not None else _of(unit.learner).init(unit.config, width)
            cells.append(Cell(state, first_lags(unit.lags)))
        return cells

    def predict(self, cells: Cells, x: F64) -> F64:
        """The experts' forecasts for x, shape (N,)."""
        values = np.empty(self.count)
        for unit, cell in zip(self.units, cells, strict=True):
            own = np.concatenate((x, cell.lags))
            with _named(unit):
                if unit.bank is not None:
                    values[list(unit.experts)] = unit.bank.predict(_bank(cell), own)
                else:
                    values[unit.experts[0]] = _of(unit.learner).predict(unit.config, cell.state, own).value
        return values

    def play(self, cells: Cells, x: F64, y: float, t: int, rng: RoundRng) -> tuple[F64, list[UnitTurn]]:
        """The experts' forecasts, shape (N,), and their rounds; changes nothing."""
        values, turns = np.empty(self.count), []
        forks = rng.begin_forks(self._streams, t, 1)
        for unit, cell, fork in zip(self.units, cells, forks, strict=True):
            own = np.concatenate((x, cell.lags))
            with _named(unit):
                if unit.bank is not None:
                    turn = unit.bank.play(_bank(cell), own, y, fork)
                    turns.append(UnitTurn(turn, turn.values))
                else:
                    played = _of(unit.learner).play(unit.config, cell.state, own, y, fork)
                    turns.append(UnitTurn(played, [played.forecast.value]))
            values[list(unit.experts)] = turns[-1].values
        rng.end_forks(forks, t, 1)
        return values, turns

    def learn(self, cells: Cells, turns: Sequence[UnitTurn], y: float) -> None:
        """Carry played rounds into the cells."""
        for unit, cell, turn in zip(self.units, cells, turns, strict=True):
            if isinstance(turn.played, BankTurn):
                assert unit.bank is not None
                unit.bank.learn(_bank(cell), turn.played)
            else:
                _of(unit.learner).learn(unit.config, cell.state, turn.played)
            if unit.lags:
                cell.lags = next_lags(cell.lags, y)

    def run(self, cells: Cells, X: F64, y: F64, t: int, rng: RoundRng) -> F64:
        """The experts' forecasts in at most BLOCK rounds from t on, shape (n, N).

        If anything is raised, a NumericalError or a ReplayDivergence, nothing has changed.
        """
        values = np.empty((len(y), self.count))
        forks = rng.begin_forks(self._streams, t, len(y))
        before = copy.deepcopy(list(cells))
        try:
            for unit, cell, fork in zip(self.units, cells, forks, strict=True):
                own = X
                if unit.lags:
                    lags = lag_rows(cell.lags, y)
                    own, cell.lags = np.hstack((X, lags[:-1])), lags[-1].copy()
                with _named(unit):
                    if unit.bank is not None:
                        values[:, list(unit.experts)] = unit.bank.run(_bank(cell), own, y, fork)
                    else:
                        values[:, unit.experts[0]] = _of(unit.learner).run(unit.config, cell.state, own, y, fork).values
            rng.end_forks(forks, t, len(y))
        except BaseException:
            # Whatever it is: experts at different rounds would never come together again.
            cells[:] = before
            raise
        return values

    def sizes(self, cells: Cells) -> tuple[int, int]:
        """Stored points and bytes of all units."""
        points, sizes = zip(
            *(self._describe(unit, cell) for unit, cell in zip(self.units, cells, strict=True)), strict=True
        )
        return sum(points), sum(sizes)

    def _describe(self, unit: Unit, cell: Cell) -> tuple[int, int]:
        """Stored points and bytes."""
        if unit.bank is not None:
            state = _bank(cell)
            return len(state.sample), state.nbytes + cell.lags.nbytes
        told = _of(unit.learner).describe(unit.config, cell.state)
        return int(told["dictionary"]), int(told["bytes"]) + cell.lags.nbytes


@contextmanager
def _named(unit: Unit) -> Iterator[None]:
    """Errors of the arithmetic say which expert's it is."""
    try:
        yield
    except NumericalError as error:
        what = "experts" if len(unit.experts) > 1 else "expert"
        kind = "pros-n-kons" if unit.learner is None else unit.learner.kind
        raise type(error)(f"{what} {', '.join(map(str, unit.experts))}, {kind}: {error}") from error


def _bank(cell: Cell) -> BankState:
    assert isinstance(cell.state, BankState)
    return cell.state


def _of(learner: Learner[Any, Any, Any] | None) -> Learner[Any, Any, Any]:
    assert learner is not None
    return learner
