"""The learner contract, the registry, and specs: what makes a learner.

A learner is stateless: all that is chosen is in its config, all that changes is in its state. A round has two halves.
`play` is pure: it makes the forecast, looks at the truth and decides all that will change. `learn` carries a played
round into the state. A caller that must first make a round durable does so between the two, and one that loses a race
just drops the played round; `update` is both at once.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from okl_core.contract.given import as_numbers
from okl_core.contract.lags import MAX_LAGS, first_lags, lag_rows
from okl_core.contract.learned_half_life import has_learned_half_life, mixture
from okl_core.contract.probabilities import given_probabilities
from okl_core.contract.rng import RoundRng
from okl_core.contract.state import unpack
from okl_core.contract.workload import LONG_WORK
from okl_core.contract.wrong_fields import json_name, told
from okl_core.errors import (
    MAX_QUOTED,
    ConfigError,
    ShapeError,
    UnknownKind,
    WeightError,
)
from okl_core.losses import Loss
from okl_core.types import (
    F64,
    REALS,
    BlockInfo,
    Forecast,
    Interval,
    LearnerConfig,
    LearnerState,
    Round,
    Standing,
    Stored,
    Target,
)

C = TypeVar("C", bound=LearnerConfig)
S = TypeVar("S", bound=LearnerState)
R = TypeVar("R", bound=Round)


class Learner(ABC, Generic[C, S, R]):
    """An online algorithm. Subclasses are final and have no fields.

    `learn` owns the state it is given and may write into its arrays. `play` and `predict` never do.
    """

    kind: ClassVar[str]
    """Wire name, kebab-case, permanent."""
    references: ClassVar[tuple[str, ...]]
    """Citation keys of docs/references.md."""
    dims: ClassVar[int | None] = None
    """The only number of inputs that it takes, lags among them. None: any."""
    takes_weights: ClassVar[bool] = False
    """May a round have a weight? Then `play_weighted` and `run_weighted` are overridden."""
    config_type: ClassVar[type[LearnerConfig]]
    state_type: ClassVar[type[LearnerState]]

    @abstractmethod
    def loss(self, config: C) -> Loss:
        """The loss that the learner minimises."""

    def target(self, config: C) -> Target:
        """What it takes as truth."""
        return self.loss(config).target

    def truth_range(self, config: C) -> Interval:
        """Between what a real target must lie; (0, K - 1) of K classes."""
        return REALS

    def input_radius(self, config: C) -> float | None:
        """Radius of the ball around 0 that inputs should lie in, where the guarantee asks for one."""
        return None

    def initial_bytes(self, config: C, dim: int) -> int:
        """What the state takes once a round is learned, at least: known before anything that large is made.

        May raise the ConfigError of `init` for inputs of this dimension.
        """
        return 0

    def extra_work(self, config: C, state: S, rounds: int) -> float:
        """What one of the next rounds may take beyond a usual one, in the units of `LONG_WORK`, about.

        Of a learner with rounds that are not alike, such as one that makes an embedding. Where the truths or coins to come
        decide it, all that they may decide.
        """
        return 0.0

    def has_long_round(self, config: C, state: S, rounds: int) -> bool:
        """May one of the next rounds take far longer than those around it, by milliseconds?"""
        return self.extra_work(config, state, rounds) >= LONG_WORK

    def conditioning(self, config: C, state: S) -> float:
        """How much a relative rounding error of the arithmetic may have grown in a forecast, at least 1; perhaps infinite.

        By forecasts of size 1. Not for every round: it may take as long as one, or longer.
        """
        return 1.0

    @abstractmethod
    def init(self, config: C, dim: int) -> S:
        """The state before the first round, for inputs in R^dim."""

    def unpack(self, config: C, arrays: Mapping[str, Stored]) -> S:
        """The state that `okl_core.state.pack` gave as arrays. Raises StateFormatError."""
        return unpack(cast(type[S], self.state_type), arrays)

    @abstractmethod
    def predict(self, config: C, state: S, x: F64) -> Forecast:
        """The forecast for x, shape (d,)."""

    @abstractmethod
    def play(self, config: C, state: S, x: F64, y: float, rng: RoundRng) -> R:
        """One whole round at this state, nothing changed."""

    def play_weighted(self, config: C, state: S, x: F64, y: float, weight: float, rng: RoundRng) -> R:
        """A round whose loss counts `weight` times; with 1 it is that of `play`. Raises WeightError."""
        raise _takes_no_weights(self.kind)

    @abstractmethod
    def learn(self, config: C, state: S, played: R) -> None:
        """Carry a played round into the state. Raises NumericalError before anything has changed."""

    def run(self, config: C, state: S, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        """n rounds in order, X of shape (n, d). Equal to n rounds of `play` and `learn` to 1e-9."""
        values, losses = np.empty(len(y)), np.empty(len(y))
        forecasts: list[Forecast] = []
        for i in range(len(y)):
            played = self.play_and_learn(config, state, X[i], float(y[i]), rng)
            values[i], losses[i] = played.forecast.value, played.loss
            forecasts.append(played.forecast)
        return BlockInfo(state.t, values, losses, given_probabilities(forecasts), rng.finish())

    def run_weighted(self, config: C, state: S, X: F64, y: F64, weights: F64, rng: RoundRng) -> BlockInfo:
        """`run` with weights, shape (n,). Raises WeightError."""
        raise _takes_no_weights(self.kind)

    def play_and_learn(self, config: C, state: S, x: F64, y: float, rng: RoundRng) -> R:
        """One round of a `run`."""
        rng.at(state.t + 1)
        played = self.play(config, state, x, y, rng)
        self.learn(config, state, played)
        return played

    @abstractmethod
    def describe(self, config: C, state: S) -> dict[str, float]:
        """Numbers to look at; `t`, `dictionary` (stored points) and `bytes` are always among them."""

    def standing(self, config: C, state: S) -> Standing | None:
        """How its parts do; None for a learner that is not made of several. O(parts)."""
        return None


def _takes_no_weights(kind: str) -> WeightError:
    known = ", ".join(other for other in learner_kinds() if get_learner(other).takes_weights)
    return WeightError(f"{kind} takes no weights; these learners do: {known}")


def from_kind(value: Any) -> Any:
    """A spec as it is validated: a word is short for an object with nothing but this kind."""
    return {"kind": value} if isinstance(value, str) else value


def or_a_kind(schema: JsonSchemaValue, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    """The JSON schema of a spec that `from_kind` may have made, from that of the object."""
    if handler.mode == "serialization":
        return schema
    return {"anyOf": [schema, {"type": "string", "description": 'A kind, short for {"kind": ...}.'}]}


class LearnerSpec(BaseModel):
    """What makes a learner: a kind, the seed of its coins, and its parameters. A kind alone is short for it."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        defer_build=True,
        json_schema_extra={"examples": [{"kind": "kons", "lags": 5, "config": {"loss": "logistic"}}]},
    )

    kind: str = Field(description="Wire name of the learner; see the catalogue.")
    seed: int = Field(default=0, ge=0, lt=2**63, description="Seed of its coins.")
    lags: int = Field(
        default=0,
        ge=0,
        le=MAX_LAGS,
        description="So many of the last truths, newest first, become further inputs; 0 before there were any.",
        examples=[5],
    )
    config: dict[str, Any] = Field(default_factory=dict, description="Parameters; each kind has its own schema.")

    _from_kind = model_validator(mode="before")(from_kind)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return or_a_kind(handler(schema), handler)


Spec = LearnerSpec | Mapping[str, Any] | str
"""How a learner is asked for: "kons" is short for {"kind": "kons"}."""

_REGISTRY: dict[str, Learner[Any, Any, Any]] = {}


def register(cls: type[Learner[Any, Any, Any]]) -> type[Learner[Any, Any, Any]]:
    """Class decorator that makes a learner known by its kind."""
    if cls.kind in _REGISTRY and type(_REGISTRY[cls.kind]) is not cls:
        raise ConfigError(f"two learners are called {cls.kind!r}")
    _REGISTRY[cls.kind] = cls()
    return cls


@contextmanager
def registered(*learners: Learner[Any, Any, Any]) -> Iterator[None]:
    """These learners are known by their kinds as long as the context lasts, and what is registered in it: for tests."""
    _discover()
    before = dict(_REGISTRY)
    _REGISTRY.update({learner.kind: learner for learner in learners})
    try:
        yield
    finally:
        _REGISTRY.clear()
        _REGISTRY.update(before)


def get_learner(kind: str) -> Learner[Any, Any, Any]:
    """The algorithm of this kind. Raises UnknownKind."""
    _discover()
    if kind not in _REGISTRY:
        raise UnknownKind(kind, learner_kinds())
    return _REGISTRY[kind]


def learner_kinds() -> list[str]:
    """The registered kinds, sorted."""
    _discover()
    return sorted(_REGISTRY)


@functools.cache
def _discover() -> None:
    package = importlib.import_module("okl_core.learners")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"okl_core.learners.{module.name}")


def catalogue() -> list[dict[str, Any]]:
    """One entry a kind: what it is, its references, the JSON schema of its config and the defaults."""
    entries = []
    for kind in learner_kinds():
        learner = get_learner(kind)
        config_type = learner.config_type
        entries.append(
            {
                "kind": kind,
                "summary": (type(learner).__doc__ or "").strip().split("\n")[0],
                "target": learner.target(config_type()),
                "dims": learner.dims,
                "references": list(learner.references),
                "defaults": config_type().model_dump(mode="json"),
                "config_schema": config_type.model_json_schema(),
            }
        )
    return entries


def parse_spec(spec: Spec) -> tuple[LearnerSpec, Learner[Any, Any, Any], LearnerConfig]:
    """The spec, its algorithm and its config. Raises UnknownKind, or ConfigError with every field at fault.

    Those of a pool, where a half-life is to be learned and nothing else waits for inputs.
    """
    if isinstance(spec, LearnerSpec):
        parsed = spec
    elif isinstance(spec, Mapping | str):
        parsed = _validated(LearnerSpec, spec if isinstance(spec, str) else dict(spec), "spec", ())
    else:
        raise ConfigError(f'a spec is a kind, or an object {{"kind": ..., "config": ...}}, not {json_name(spec)}')
    learner = get_learner(parsed.kind)
    config = _validated(learner.config_type, parsed.config, parsed.kind, ("config",))
    if parsed.lags and learner.target(config) == "class":
        told = "classes are no numbers, so a learner of classes takes none as inputs: leave `lags` out"
        raise ConfigError(f"{parsed.kind}: lags: {told}", [(("lags",), told)])
    if learner.dims is not None and parsed.lags >= learner.dims:
        told = f"lags are inputs too, and there is room for {learner.dims - 1}"
        raise ConfigError(f"{parsed.kind}: lags: {told}", [(("lags",), told)])
    if has_learned_half_life(parsed.config):
        # An error of the pool is told before the inputs are there.
        made = _pool_of(parsed, learner, config)
        if not config.waiting():
            return made
    return parsed, learner, config


def parse_player(spec: LearnerSpec) -> tuple[Learner[Any, Any, Any], LearnerConfig]:
    """The algorithm that plays once the spec's inputs are there, and its config as far as it is known before.

    That of `parse_spec`, or the pool that a half-life to be learned will make of it, with the defaults of what still waits.
    """
    parsed, learner, config = parse_spec(spec)
    if has_learned_half_life(parsed.config):
        _, learner, config = _pool_of(parsed, learner, config)
    return learner, config


def _pool_of(
    parsed: LearnerSpec, learner: Learner[Any, Any, Any], config: LearnerConfig
) -> tuple[LearnerSpec, Learner[Any, Any, Any], LearnerConfig]:
    """What a half-life to be learned makes of a spec; what waits for inputs is left out."""
    waiting = {path[0] for path, _ in config.waiting()}
    known = {name: value for name, value in parsed.config.items() if name not in waiting}
    pool = mixture(parsed.kind, known, config, learner.loss(config), learner.target(config))
    return parse_spec(parsed.model_copy(update={"kind": "pool", "config": pool}))


def taken_dim(learner: Learner[Any, Any, Any], config: LearnerConfig) -> int | None:
    """The only number of inputs that the learner takes with this config, lags among them; None: any."""
    return config.dim if learner.dims is None else learner.dims


def require_dims(learner: Learner[Any, Any, Any], dim: int) -> None:
    """Raises ShapeError if the learner does not take so many inputs, lags among them."""
    if learner.dims not in (None, dim):
        raise ShapeError(f"{learner.kind} takes inputs of dimension {learner.dims}; these have {dim}, lags included")


MAX_ERRORS_TOLD = 100
"""Of more errors in one config only their number is told: to list a million takes half a minute."""


M = TypeVar("M", bound=BaseModel)


def _validated(model: type[M], value: Any, what: str, prefix: tuple[str, ...]) -> M:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _config_error(model, error, what, prefix) from error


def _config_error(model: type[BaseModel], error: ValidationError, what: str, prefix: tuple[str, ...]) -> ConfigError:
    if error.error_count() > MAX_ERRORS_TOLD:
        many = f"{error.error_count():,} places are wrong, too many to tell"
        return ConfigError(f"{what}: {many}", [(prefix, many)])
    found = error.errors(include_url=False)
    errors = [((*prefix, *item["loc"]), told(model, item)) for item in found]
    listed = "; ".join(f"{'.'.join(str(part)[:MAX_QUOTED] for part in path)}: {message}" for path, message in errors)
    return ConfigError(f"{what}: {listed}", errors)


def resolve(spec: Spec, X: ArrayLike, y: ArrayLike | None = None, *, lags: ArrayLike | None = None) -> LearnerSpec:
    """The spec with what waits for inputs found from the rows of X, shape (n, d): `sigma: "median"` and the like.

    `metric: "learned"` needs their truths y, shape (n,), too, and a spec with lags either those or the `lags` of the rows,
    shape (n, k). Raises ShapeError.

    Examples
    --------
    >>> spec = {"kind": "kons", "config": {"kernel": {"kind": "gaussian", "sigma": "median"}}}
    >>> resolve(spec, np.array([[0.0], [1.0], [3.0]])).config["kernel"]["sigma"]
    2.0
    """
    parsed, _, config = parse_spec(spec)
    if not config.waiting():
        return parsed
    X = as_numbers(X, "X")
    y = None if y is None else as_numbers(y, "y", "y")
    if parsed.lags:
        if lags is not None:
            lags = as_numbers(lags, "lags", "lags")
        else:
            lags = lag_rows(first_lags(parsed.lags), np.empty(0) if y is None else y)[:-1]
        if lags.shape != (len(X), parsed.lags):
            raise ShapeError(f"a spec with lags is resolved by inputs and as many truths; X has {len(X)} rows", "y")
        X = np.hstack((X, lags))
    return parsed.model_copy(update={"config": config.resolved(X, y).model_dump(mode="json")})


def waits_for_inputs(spec: Spec) -> bool:
    """Must `resolve` see inputs before a learner can be made of this spec?"""
    return bool(parse_spec(spec)[2].waiting())
