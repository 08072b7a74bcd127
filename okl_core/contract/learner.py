"""The learner contract, the registry, and specs.

A learner is stateless: all choices are in its config, everything that changes is in its state. A round has two halves.
`play` is pure: it makes the forecast, looks at the truth and decides every change. `learn` carries the played round into
the state. Between the two, a caller can make the round durable, or drop it after losing a race. `OnlineLearner.update`
does both halves at once.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from okl_core.contract.arguments import as_numbers
from okl_core.contract.lags import MAX_LAGS, first_lags, lag_rows
from okl_core.contract.learned_half_life import has_learned_half_life, mixture
from okl_core.contract.probabilities import given_probabilities
from okl_core.contract.rng import RoundRng
from okl_core.contract.state import DIM, LAGS, unpack
from okl_core.contract.workload import LONG_WORK
from okl_core.contract.wrong_fields import json_name, wrong_fields
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
    """An online algorithm. Subclasses are final and have no instance attributes.

    `learn` owns the state it is given and may write into its arrays. `play` and `predict` never do.
    """

    kind: ClassVar[str]
    """Wire name, kebab-case, permanent."""
    references: ClassVar[tuple[str, ...]]
    """Citation keys of docs/references.md."""
    dims: ClassVar[int | None] = None
    """The only number of inputs that it takes, including lags; None for any number."""
    takes_weights: ClassVar[bool] = False
    """Whether a round may have a weight; `play_weighted` and `run_weighted` are then overridden."""
    config_type: ClassVar[type[LearnerConfig]]
    state_type: ClassVar[type[LearnerState]]

    @abstractmethod
    def loss(self, config: C) -> Loss:
        """The loss that the learner minimises."""

    def target(self, config: C) -> Target:
        """The kind of truth that the learner takes."""
        return self.loss(config).target

    def probability(self, config: C, value: float) -> float | None:
        """P(y = +1) of a forecast with this value; None without a probability, or where the value does not determine it."""
        return self.loss(config).probability(value)

    def gives_probabilities(self, config: C) -> bool:
        """Whether its forecasts of labels or classes have probabilities."""
        return self.target(config) == "class" or self.probability(config, 0.0) is not None

    def truth_range(self, config: C) -> Interval:
        """The range of real-valued truths; (0, K - 1) for K classes."""
        return REALS

    def input_radius(self, config: C) -> float | None:
        """Radius of the ball around 0 that should contain the inputs, if the guarantee needs one."""
        return None

    def initial_bytes(self, config: C, dim: int) -> int:
        """Lower bound on the state's bytes after the first round, known before anything that large is allocated.

        May raise the ConfigError of `init` for inputs of this dimension.
        """
        return 0

    def extra_work(self, config: C, state: S, rounds: int) -> float:
        """Estimate of the most work that one of the next rounds takes beyond a usual round, in the units of `LONG_WORK`.

        Nonzero for learners whose rounds differ in cost, for example if some rounds build an embedding. If future truths
        or random draws decide, this is the worst case.
        """
        return 0.0

    def has_long_round(self, config: C, state: S, rounds: int) -> bool:
        """Whether one of the next rounds may take far longer than those around it, by milliseconds."""
        return self.extra_work(config, state, rounds) >= LONG_WORK

    def conditioning(self, config: C, state: S) -> float:
        """Factor by which a relative rounding error may have grown in a forecast: at least 1, perhaps infinite.

        Stated for forecasts of size 1. Do not call it every round: it may take as long as a round, or longer.
        """
        return 1.0

    @abstractmethod
    def init(self, config: C, dim: int) -> S:
        """The state before the first round, for inputs in R^dim."""

    def unpack(self, config: C, arrays: Mapping[str, Stored]) -> S:
        """The state from the arrays of `okl_core.contract.state.pack`. Raises StateFormatError."""
        state = unpack(cast(type[S], self.state_type), arrays)
        state.require_config(config)
        return state

    @abstractmethod
    def predict(self, config: C, state: S, x: F64) -> Forecast:
        """The forecast for x, shape (d,)."""

    @abstractmethod
    def play(self, config: C, state: S, x: F64, y: float, rng: RoundRng) -> R:
        """One whole round at this state; changes nothing."""

    def play_weighted(self, config: C, state: S, x: F64, y: float, weight: float, rng: RoundRng) -> R:
        """A round whose loss is multiplied by `weight`; with weight 1, the round of `play`. Raises WeightError."""
        raise _takes_no_weights(self.kind)

    @abstractmethod
    def learn(self, config: C, state: S, played: R) -> None:
        """Carry a played round into the state. Raises NumericalError before anything has changed."""

    def run(self, config: C, state: S, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        """n rounds in order, X of shape (n, d). Equal to n rounds of `play` and `learn` within 1e-9."""
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
        """Play and learn one round of a `run`."""
        rng.at(state.t + 1)
        played = self.play(config, state, x, y, rng)
        self.learn(config, state, played)
        return played

    @abstractmethod
    def describe(self, config: C, state: S) -> dict[str, float]:
        """Diagnostic numbers; always include `t`, `dictionary` (stored points) and `bytes`."""

    def standing(self, config: C, state: S) -> Standing | None:
        """The current standing of its parts; None for a learner that is not composite. O(parts)."""
        return None


def _takes_no_weights(kind: str) -> WeightError:
    known = ", ".join(other for other in learner_kinds() if get_learner(other).takes_weights)
    return WeightError(f"{kind} takes no weights; these learners do: {known}")


def from_kind(value: Any) -> Any:
    """A spec in the form that is validated: a string becomes an object with only this kind."""
    return {"kind": value} if isinstance(value, str) else value


def or_a_kind(schema: JsonSchemaValue, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    """The JSON schema of a spec that may also be a kind alone, made from the schema of the object."""
    if handler.mode == "serialization":
        return schema
    return {"anyOf": [schema, {"type": "string", "description": 'A kind, short for {"kind": ...}.'}]}


class LearnerSpec(BaseModel):
    """The specification of a learner: kind, seed, lags and parameters. A string is short for {"kind": ...}."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        defer_build=True,
        json_schema_extra={"examples": [{"kind": "kons", "lags": 5, "config": {"loss": "logistic"}}]},
    )

    kind: str = Field(description="Wire name of the learner; see the catalogue.")
    seed: int = Field(default=0, ge=0, lt=2**63, description="Seed of its random draws.")
    lags: int = Field(
        default=0,
        ge=0,
        le=MAX_LAGS,
        description="How many of the last truths, newest first, become further inputs; 0 stands for those not yet known.",
        examples=[5],
    )
    config: dict[str, Any] = Field(default_factory=dict, description="Parameters; each kind has its own schema.")

    _from_kind = model_validator(mode="before")(from_kind)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return or_a_kind(handler(schema), handler)


Spec = LearnerSpec | Mapping[str, Any] | str
"""The accepted forms of a spec: "kons" is short for {"kind": "kons"}."""

_REGISTRY: dict[str, Learner[Any, Any, Any]] = {}


def register(cls: type[Learner[Any, Any, Any]]) -> type[Learner[Any, Any, Any]]:
    """Class decorator that registers a learner by its kind.

    Raises ConfigError if another learner has the kind, or if the state has a field of a name that is the library's.
    """
    if cls.kind in _REGISTRY and type(_REGISTRY[cls.kind]) is not cls:
        raise ConfigError(f"two learners are called {cls.kind!r}")
    if taken := {field.name for field in fields(cls.state_type)} & {DIM, LAGS}:
        raise ConfigError(f"{cls.kind}: the name {min(taken)!r} in a state is the library's; give the field another")
    _REGISTRY[cls.kind] = cls()
    return cls


@contextmanager
def registered(*learners: Learner[Any, Any, Any]) -> Iterator[None]:
    """Register these learners, and any registered inside the context, until the context ends. For tests."""
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


def parse_spec(spec: Spec) -> tuple[LearnerSpec, Learner[Any, Any, Any], LearnerConfig]:
    """The spec, its algorithm and its config. Raises UnknownKind, or a ConfigError that lists every invalid field.

    With a half-life to be learned, and no other field waiting for inputs, all three are those of the pool.
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
        message = "classes are not numbers, so a learner of classes cannot have lags: leave `lags` out"
        if "truth" in learner.config_type.model_fields:
            message += ', or say in its config that the truths are numbers: `"truth": "numbers"`'
        raise ConfigError(f"{parsed.kind}: lags: {message}", [(("lags",), message)])
    taken = taken_dim(learner, config)
    if taken is not None and parsed.lags >= taken:
        message = f"lags are inputs too: with x they are {taken}, so there is room for {taken - 1}"
        raise ConfigError(f"{parsed.kind}: lags: {message}", [(("lags",), message)])
    if has_learned_half_life(parsed.config):
        # Build the pool even if fields still wait for inputs, so that its errors are reported early.
        pool = _pool_of(parsed, learner, config)
        if not config.waiting():
            return pool
    return parsed, learner, config


def parse_player(spec: LearnerSpec) -> tuple[Learner[Any, Any, Any], LearnerConfig]:
    """The algorithm that will play once the spec is resolved, and its config as far as it is known now.

    As `parse_spec`, or the pool if a half-life is to be learned, with defaults for fields that still wait for inputs.
    """
    parsed, learner, config = parse_spec(spec)
    if has_learned_half_life(parsed.config):
        _, learner, config = _pool_of(parsed, learner, config)
    return learner, config


def _pool_of(
    parsed: LearnerSpec, learner: Learner[Any, Any, Any], config: LearnerConfig
) -> tuple[LearnerSpec, Learner[Any, Any, Any], LearnerConfig]:
    """The pool that a spec with a half-life to be learned expands to, without the fields that wait for inputs."""
    waiting = {path[0] for path, _ in config.waiting()}
    known = {name: value for name, value in parsed.config.items() if name not in waiting}
    pool = mixture(parsed.kind, known, config, learner.loss(config), learner.target(config))
    return parse_spec(parsed.model_copy(update={"kind": "pool", "config": pool}))


def taken_dim(learner: Learner[Any, Any, Any], config: LearnerConfig) -> int | None:
    """The only number of inputs that the learner takes with this config, including lags; None for any number."""
    return config.dim if learner.dims is None else learner.dims


def require_dims(learner: Learner[Any, Any, Any], dim: int) -> None:
    """Raise ShapeError if the learner does not take this number of inputs, including lags."""
    if learner.dims not in (None, dim):
        raise ShapeError(f"{learner.kind} takes inputs of dimension {learner.dims}; these have {dim}, lags included")


M = TypeVar("M", bound=BaseModel)


def _validated(model: type[M], value: Any, what: str, prefix: tuple[str, ...]) -> M:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        wrong = wrong_fields(model, value, error, prefix)
        places = (".".join(str(part)[:MAX_QUOTED] for part in path) for path, _ in wrong)
        listed = "; ".join(
            f"{at}: {message}" if at else message for at, (_, message) in zip(places, wrong, strict=True)
        )
        raise ConfigError(f"{what}: {listed}", wrong) from error


def resolve(spec: Spec, X: ArrayLike, y: ArrayLike | None = None, *, lags: ArrayLike | None = None) -> LearnerSpec:
    """The spec with its waiting fields, such as `sigma: "median"`, found from the rows of X, shape (n, d).

    `metric: "learned"` also needs their truths y, shape (n,). A spec with lags needs either y or the `lags` of the rows,
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
    """Whether `resolve` must see inputs before a learner can be created from this spec."""
    return bool(parse_spec(spec)[2].waiting())
