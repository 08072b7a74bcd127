"""The learner contract, the registry, and the class that users hold.

A learner is stateless: all that is chosen is in its config, all that changes is in its state. A round has two halves.
`play` is pure: it makes the forecast, looks at the truth and decides all that will change. `learn` carries a played
round into the state. A caller that must first make a round durable does so between the two, and one that loses a race
just drops the played round; `update` is both at once.
"""

from __future__ import annotations

import functools
import importlib
import math
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import (
    ConfigError,
    DivergedError,
    InputError,
    LabelError,
    NonFiniteError,
    ReplayDivergence,
    ShapeError,
    StateError,
    StateFormatError,
    UnknownLearner,
    unresolved,
)
from okl_core.lags import LARGEST_TRUTH, MAX_LAGS, first_lags, kept_lags, lag_rows, next_lags
from okl_core.losses import Loss
from okl_core.rng import RoundRng
from okl_core.state import pack, unpack
from okl_core.types import (
    F64,
    REALS,
    BlockInfo,
    Forecast,
    Interval,
    LearnerConfig,
    LearnerState,
    Round,
    RoundInfo,
    Target,
)

C = TypeVar("C", bound=LearnerConfig)
S = TypeVar("S", bound=LearnerState)
R = TypeVar("R", bound=Round)

LAGS = "lags"
"""The array that `state` has beside those of the learner, where there are lags."""

REPLAY_TOLERANCE = 1e-9
"""How far, relative to max(1, |value|), a replayed forecast may be from the recorded one."""


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
        """What the state takes once a round is learned, at least: known before anything that large is made."""
        return 0

    @abstractmethod
    def init(self, config: C, dim: int) -> S:
        """The state before the first round, for inputs in R^dim."""

    def unpack(self, config: C, arrays: Mapping[str, F64]) -> S:
        """The state that `okl_core.state.pack` gave as arrays. Raises StateFormatError."""
        return unpack(cast(type[S], self.state_type), arrays)

    @abstractmethod
    def predict(self, config: C, state: S, x: F64) -> Forecast:
        """The forecast for x, shape (d,)."""

    @abstractmethod
    def play(self, config: C, state: S, x: F64, y: float, rng: RoundRng) -> R:
        """One whole round at this state, nothing changed."""

    @abstractmethod
    def learn(self, config: C, state: S, played: R) -> None:
        """Carry a played round into the state. Raises NumericalError before anything has changed."""

    def run(self, config: C, state: S, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        """n rounds in order, X of shape (n, d). Equal to n rounds of `play` and `learn` to 1e-9."""
        values, losses = np.empty(len(y)), np.empty(len(y))
        forecasts: list[Forecast] = []
        for i in range(len(y)):
            rng.at(state.t + 1)
            played = self.play(config, state, X[i], float(y[i]), rng)
            self.learn(config, state, played)
            values[i], losses[i] = played.forecast.value, played.loss
            forecasts.append(played.forecast)
        return BlockInfo(state.t, values, losses, given_probabilities(forecasts), rng.finish())

    @abstractmethod
    def describe(self, config: C, state: S) -> dict[str, float]:
        """Numbers to look at; `t`, `dictionary` (stored points) and `bytes` are always among them."""


class LearnerSpec(BaseModel):
    """What makes a learner: a kind, the seed of its coins, and its parameters."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
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


_REGISTRY: dict[str, Learner[Any, Any, Any]] = {}


def register(cls: type[Learner[Any, Any, Any]]) -> type[Learner[Any, Any, Any]]:
    """Class decorator that makes a learner known by its kind."""
    if cls.kind in _REGISTRY and type(_REGISTRY[cls.kind]) is not cls:
        raise ConfigError(f"two learners are called {cls.kind!r}")
    _REGISTRY[cls.kind] = cls()
    return cls


def get_learner(kind: str) -> Learner[Any, Any, Any]:
    """The algorithm of this kind. Raises UnknownLearner."""
    _discover()
    if kind not in _REGISTRY:
        raise UnknownLearner(kind, learner_kinds())
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


def parse_spec(
    spec: LearnerSpec | Mapping[str, Any],
) -> tuple[LearnerSpec, Learner[Any, Any, Any], LearnerConfig]:
    """The spec, its algorithm and its config. Raises UnknownLearner, or ConfigError with every field at fault."""
    try:
        parsed = spec if isinstance(spec, LearnerSpec) else LearnerSpec.model_validate(dict(spec))
        learner = get_learner(parsed.kind)
    except ValidationError as error:
        raise _config_error("spec", error, ()) from error
    try:
        config = learner.config_type.model_validate(parsed.config)
    except ValidationError as error:
        raise _config_error(parsed.kind, error, ("config",)) from error
    if parsed.lags and learner.target(config) == "class":
        told = "classes are no numbers, so a learner of classes takes none as inputs: leave `lags` out"
        raise ConfigError(f"{parsed.kind}: lags: {told}", [(("lags",), told)])
    if learner.dims is not None and parsed.lags >= learner.dims:
        told = f"lags are inputs too, and there is room for {learner.dims - 1}"
        raise ConfigError(f"{parsed.kind}: lags: {told}", [(("lags",), told)])
    return parsed, learner, config


def taken_dim(learner: Learner[Any, Any, Any], config: LearnerConfig) -> int | None:
    """The only number of inputs that the learner takes with this config, lags among them; None: any."""
    return config.dim if learner.dims is None else learner.dims


def require_dims(learner: Learner[Any, Any, Any], dim: int) -> None:
    """Raises ShapeError if the learner does not take so many inputs, lags among them."""
    if learner.dims not in (None, dim):
        raise ShapeError(f"{learner.kind} takes inputs of dimension {learner.dims}; these have {dim}, lags included")


def _config_error(what: str, error: ValidationError, prefix: tuple[str, ...]) -> ConfigError:
    errors = [((*prefix, *item["loc"]), item["msg"].removeprefix("Value error, ")) for item in error.errors()]
    listed = "; ".join(f"{'.'.join(map(str, path))}: {message}" for path, message in errors)
    return ConfigError(f"{what}: {listed}", errors)


def resolve(
    spec: LearnerSpec | Mapping[str, Any], X: F64, y: F64 | None = None, *, lags: F64 | None = None
) -> LearnerSpec:
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
    if parsed.lags:
        if lags is None:
            lags = lag_rows(first_lags(parsed.lags), np.empty(0) if y is None else y)[:-1]
        if lags.shape != (len(X), parsed.lags):
            raise ShapeError(f"a spec with lags is resolved by inputs and as many truths; X has {len(X)} rows", "y")
        X = np.hstack((X, lags))
    return parsed.model_copy(update={"config": config.resolved(X, y).model_dump(mode="json")})


def waits_for_inputs(spec: LearnerSpec | Mapping[str, Any]) -> bool:
    """Must `resolve` see inputs before a learner can be made of this spec?"""
    return bool(parse_spec(spec)[2].waiting())


class OnlineLearner:
    """A learner in use: algorithm, config, state, coins and lags, held together. Made by `create` and `restore`.

    With `lags` in the spec each x gets the last k truths learned, without a word from the caller. One whose truths come
    late keeps the `lags` that it made a forecast with, and gives them back as `lags=` when the truth is there, so that
    the learner learns from what it predicted from.
    """

    def __init__(self, spec: LearnerSpec, state: LearnerState | None, dim: int, lags: F64 | None = None) -> None:
        self.spec, self._learner, self._config = parse_spec(spec)
        if waiting := self._config.waiting():
            raise unresolved(waiting)
        self.dim = dim
        self._k = self.spec.lags
        require_dims(self._learner, dim + self._k)
        self._rng = RoundRng(self.spec.seed)
        self._state = self._learner.init(self._config, dim + self._k) if state is None else state
        self._low, self._high = self._learner.truth_range(self._config)
        self.target = self._learner.target(self._config)
        self.loss = self._learner.loss(self._config)
        if self._k:
            self._low, self._high = max(self._low, -LARGEST_TRUTH), min(self._high, LARGEST_TRUTH)
        self._lags = first_lags(self._k)
        if lags is not None:
            self._lags = kept_lags(self._checked_lags(lags, self._lags.shape))

    @property
    def t(self) -> int:
        """Rounds learned."""
        return self._state.t

    @property
    def lags(self) -> F64:
        """The truths that go with the next input, shape (k,), newest first, read-only."""
        return self._lags

    def predict(self, x: F64, *, lags: F64 | None = None) -> Forecast:
        """The forecast for x, shape (d,). Changes nothing. `lags`: other ones than the present.

        Raises ShapeError, NonFiniteError, LabelError.
        """
        return self._finite(self._learner.predict(self._config, self._state, self._input(x, lags)))

    def play(self, x: F64, y: float, *, choices: bytes | None = None, lags: F64 | None = None) -> Round:
        """One round that `learn` can carry into the state; changes nothing. `choices`: outcomes to replay.

        Raises ShapeError, NonFiniteError, LabelError, NumericalError.
        """
        x, y = self._input(x, lags), self._truth(y)
        self._rng.begin(choices)
        self._rng.at(self._state.t + 1)
        try:
            played = self._learner.play(self._config, self._state, x, y, self._rng)
        except OverflowError as error:
            raise self._overflow() from error
        self._rng.verify()
        self._finite(played.forecast)
        return played

    def learn(self, played: Round) -> None:
        """Carry a played round into the state. Raises StateError if it was played at another round."""
        if played.t != self._state.t + 1:
            raise StateError(f"round {played.t} cannot be learned at t = {self._state.t}")
        self._learner.learn(self._config, self._state, played)
        if self._k:
            self._lags = next_lags(self._lags, played.y)

    def update(self, x: F64, y: float, *, lags: F64 | None = None) -> RoundInfo:
        """One full round at the current state: predict, observe, learn."""
        played = self.play(x, y, lags=lags)
        self._learner.learn(self._config, self._state, played)
        if self._k:
            self._lags = next_lags(self._lags, played.y)
        return RoundInfo(played.t, played.forecast, played.loss)

    def replay(self, x: F64, y: float, *, choices: bytes, value: float, lags: F64 | None = None) -> Round:
        """Play and learn a recorded round, with its recorded choices. Raises ReplayDivergence."""
        played = self.play(x, y, choices=choices, lags=lags)
        if not abs(played.forecast.value - value) <= REPLAY_TOLERANCE * max(1.0, abs(value)):
            raise ReplayDivergence(f"round {played.t}: recorded {value!r}, replayed {played.forecast.value!r}")
        self.learn(played)
        return played

    def run(self, X: F64, y: F64, *, choices: bytes | None = None, lags: F64 | None = None) -> BlockInfo:
        """n rounds in order, X of shape (n, d), y of shape (n,): n updates, to 1e-9, much faster.

        Checks every row first, so that a bad one changes nothing. `lags`, shape (n, k): those of each row, where they
        are not the truths of the rows before it.
        """
        X, y = self.check_rows(X, y, lags)
        before, after = self._state.t, None
        if self._k or lags is not None:
            after = lag_rows(self._lags, y)
            X = np.hstack((X, after[:-1] if lags is None else lags))
        self._rng.begin(choices)
        try:
            info = self._learner.run(self._config, self._state, X, y, self._rng)
        except OverflowError as error:
            raise self._overflow() from error
        finally:
            # A run that fails has learned the rounds before the one that it fails at.
            if after is not None:
                self._lags = kept_lags(after[self._state.t - before])
        self._rng.verify()
        return info

    def check_rows(self, X: F64, y: F64, lags: F64 | None = None) -> tuple[F64, F64]:
        """X and y as `run` takes them. Raises what `run` raises for a bad row."""
        X = np.ascontiguousarray(X, dtype=np.float64)
        y = np.ascontiguousarray(y, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != self.dim:
            raise ShapeError(f"X has shape {X.shape}, this learner takes (n, {self.dim})")
        if y.shape != (len(X),):
            raise ShapeError(f"y has shape {y.shape}, X has {len(X)} rows", "y")
        squares = np.einsum("ij,ij->i", X, X)
        if not np.isfinite(squares).all():
            row = int(np.argmin(np.isfinite(squares)))
            raise _not_finite(X[row], f"X[{row}]", row)
        if not self._takes(y).all():
            for row, truth in enumerate(y.tolist()):
                self._truth(truth, row)
        if lags is not None:
            self._checked_lags(lags, (len(y), self._k))
        return X, y

    def state(self) -> dict[str, F64]:
        """Copies of every array of the state; with the spec they are everything."""
        arrays = pack(self._state)
        return arrays | {LAGS: self._lags.copy()} if self._k else arrays

    def describe(self) -> dict[str, float]:
        return self._learner.describe(self._config, self._state)

    @property
    def nbytes(self) -> int:
        """Memory that the state takes, in bytes."""
        return int(self.describe()["bytes"]) + self._lags.nbytes

    def _input(self, x: F64, lags: F64 | None) -> F64:
        x = np.ascontiguousarray(x, dtype=np.float64)
        if x.shape != (self.dim,):
            raise ShapeError(f"x has shape {x.shape}, this learner takes ({self.dim},)")
        # One inner product tells finite inputs from others; that of BLAS overflows to inf without a warning.
        if not math.isfinite(ddot(x, x)):
            raise _not_finite(x, "x")
        if self._k or lags is not None:
            x = np.concatenate((x, self._lags if lags is None else self._checked_lags(lags, self._lags.shape)))
        return x

    def _checked_lags(self, lags: F64, shape: tuple[int, ...]) -> F64:
        lags = np.asarray(lags, dtype=np.float64)
        if lags.shape != shape:
            raise ShapeError(f"lags have shape {lags.shape}, this learner takes {shape}", "lags")
        taken = np.abs(lags) == 1.0 if self.target == "binary" else (self._low <= lags) & (lags <= self._high)
        if not (taken | (lags == 0.0)).all():
            raise LabelError("lags are truths that this learner takes, or 0", "lags")
        return lags

    def _takes(self, y: F64) -> NDArray[np.bool_]:
        """Which of the truths y, shape (n,), `_truth` takes."""
        if self.target == "binary":
            return np.abs(y) == 1.0
        taken = np.isfinite(y) & (self._low <= y) & (y <= self._high)
        return taken & (np.floor(y) == y) if self.target == "class" else taken

    def _truth(self, y: float, row: int | None = None) -> float:
        y = float(y)
        where = "y" if row is None else f"y[{row}]"
        if self.target == "binary":
            if y not in (1.0, -1.0):
                raise LabelError(f"{where} is {y}; this learner takes the labels -1 and 1", "y", row)
        elif self.target == "class":
            if not (self._low <= y <= self._high and y.is_integer()):
                told = f"{where} is {y}; this learner takes the classes {self._low:.0f} to {self._high:.0f}"
                raise LabelError(told, "y", row)
        elif not math.isfinite(y):
            raise NonFiniteError(f"{where} is {y}; the truth must be finite", "y", row)
        elif not self._low <= y <= self._high:
            raise LabelError(
                f"{where} is {y}; this learner takes truths from {self._low} to {self._high} (widen `clip` or "
                "`truth_range`, or scale the truth)",
                "y",
                row,
            )
        return y

    def _overflow(self) -> DivergedError:
        return DivergedError(f"round {self._state.t + 1} overflows; scale the inputs and the truths down")

    def _finite(self, forecast: Forecast) -> Forecast:
        if not math.isfinite(forecast.value):
            raise DivergedError(
                f"the forecast of round {self._state.t + 1} is {forecast.value}; raise the regularization"
            )
        return forecast


def given_probabilities(forecasts: Sequence[Forecast]) -> F64 | None:
    """Those of n forecasts as `BlockInfo` has them; None if one has none."""
    given = [f.probability if f.probabilities is None else f.probabilities for f in forecasts]
    return None if None in given else np.array(given, dtype=np.float64)


def _not_finite(x: F64, name: str, row: int | None = None) -> NonFiniteError:
    """Why |x|^2 is not finite: a value that is not, or values so large that no distance to x is."""
    i = int(np.argmax(np.where(np.isfinite(x), np.abs(x), np.inf)))
    message = f"{name}[{i}] is {x[i]}; every input, and its square, must be finite"
    return NonFiniteError(message, "x", i if row is None else row)


def create(spec: LearnerSpec | Mapping[str, Any], dim: int) -> OnlineLearner:
    """A new learner for inputs in R^dim. Raises UnknownLearner, ConfigError, ShapeError.

    Examples
    --------
    >>> learner = create({"kind": "mean"}, dim=1)
    >>> learner.update(np.array([0.0]), 3.0).loss
    9.0
    >>> learner.predict(np.array([0.0])).value
    3.0
    """
    if dim < 1:
        raise ShapeError(f"dim is {dim}; a learner needs at least one input")
    return OnlineLearner(parse_spec(spec)[0], None, dim)


def restore(spec: LearnerSpec | Mapping[str, Any], arrays: Mapping[str, F64], dim: int) -> OnlineLearner:
    """The learner whose `state()` gave these arrays. It continues bit for bit on the same machine.

    Raises StateFormatError.
    """
    parsed, learner, config = parse_spec(spec)
    own = dict(arrays)
    lags = own.pop(LAGS, None) if parsed.lags else None
    if parsed.lags and lags is None:
        raise StateFormatError(f"the state has no array {LAGS!r}; a spec with lags needs it")
    try:
        return OnlineLearner(parsed, learner.unpack(config, own), dim, lags)
    except InputError as error:
        raise StateFormatError(f"the state is not what the spec and the dimension need: {error}") from error
