r"""Freezing of an online learner into a fixed predictor: its current state, or the state before a uniformly drawn round.

On independent draws (x_t, y_t) from one distribution, the forecast of round r comes from a function f_r chosen before
(x_r, y_r) was seen. If r is uniform on 1 .. T, the expected loss of f_r on a new draw is the mean of the expected losses
of the rounds, hence

    E loss(f_r) = (1 / T) E sum_t loss_t <= E loss(f) + (1 / T) E regret(f)   for every f.

The current state has no such guarantee, though it is usually the better one.

r is drawn by reservoir sampling, without knowing T: the state before round t replaces the kept one with probability 1 / t.
The next round kept after r is then beyond n with probability r / n, so it is drawn directly, as floor(r / u) + 1 with u
uniform on (0, 1]: about log T draws and copies for T rounds, and one comparison in every other round.

References: [cesabianchi2004] theorem 1 and corollary 2; [li1994] for the jumps.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NoReturn, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike

from okl_core.contract.arguments import as_numbers
from okl_core.contract.facade import OnlineLearner, checked_weights, create, restore
from okl_core.contract.learner import Spec
from okl_core.contract.probabilities import joined_probabilities
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, FrozenError, ReplayDivergence, StateError, StateFormatError
from okl_core.types import F64, BlockInfo, Forecast, Round, RoundInfo, Standing, Stored

T = TypeVar("T")

FreezeRule = Literal["last", "uniform"]
"""Which state is frozen: the current one, or the one before a round drawn uniformly."""

RESERVOIR = "reservoir/"
"""Prefix of the arrays that `state` adds to those of the learner; no field of a state can begin with it."""

_LENGTH = struct.Struct("<I")


@final
class ReservoirLearner:
    """An `OnlineLearner` that keeps the state before one of its rounds, drawn uniformly from those learned so far.

    It takes over the learner and offers the same methods. Which round is kept depends only on the spec's seed and the
    number of rounds. `run` splits a block where a state is kept, so its results agree with the learner's own `run` only
    within 1e-9, and its choices have another format: replay them with a `ReservoirLearner`.

    Examples
    --------
    >>> learner = ReservoirLearner.create({"kind": "mean"}, dim=1)
    >>> _ = learner.run(np.zeros((100, 1)), np.arange(100.0))
    >>> frozen = freeze(learner, "uniform")
    >>> frozen.predict(np.zeros(1)).value == (frozen.t - 1) / 2
    True
    """

    def __init__(self, learner: OnlineLearner, round: int = 0, kept: Mapping[str, Stored] | None = None) -> None:
        """`kept` is the state before `round`. Raises StateError if it is missing and rounds have been learned already."""
        if round == 0 and learner.t:
            raise StateError(f"a reservoir holds one of all rounds; this learner has learned {learner.t} without it")
        self.learner = learner
        self.spec = learner.spec
        self.dim = learner.dim
        self.target = learner.target
        self.loss = learner.loss
        self._rng = RoundRng(learner.spec.seed, "reservoir")
        self._round = round
        self._kept = dict(kept or {})
        self._next = self._after(round)

    @classmethod
    def create(cls, spec: Spec, dim: int) -> ReservoirLearner:
        """A new learner with a reservoir. Raises what `okl_core.create` raises."""
        return cls(create(spec, dim))

    @classmethod
    def restore(cls, spec: Spec, arrays: Mapping[str, Stored], dim: int | None = None) -> ReservoirLearner:
        """The learner whose `state()` returned these arrays. Raises what `okl_core.restore` raises."""
        current = {name: array for name, array in arrays.items() if not name.startswith(RESERVOIR)}
        kept = {name[len(RESERVOIR) :]: array for name, array in arrays.items() if name.startswith(RESERVOIR)}
        learner = restore(spec, current, dim)
        try:
            round = int(kept.pop("round").item())
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise StateFormatError(f"the state has no reservoir: {error}") from error
        # Parse the kept state now, so that damage is found before the learner is frozen.
        is_fitting = restore(spec, kept, learner.dim).t == round - 1 if kept else round == 0
        if not (is_fitting and min(learner.t, 1) <= round <= learner.t):
            raise StateFormatError(f"a reservoir of round {round} does not go with a learner at t = {learner.t}")
        return cls(learner, round, kept)

    @property
    def t(self) -> int:
        """Rounds learned."""
        return self.learner.t

    @property
    def lags(self) -> F64:
        return self.learner.lags

    @property
    def kept_round(self) -> int:
        """The round before which the kept state was taken; 0 before the first round."""
        return self._round

    def kept(self) -> OnlineLearner:
        """An independent learner in the state before `kept_round`. Raises StateError before the first round."""
        if not self._round:
            raise StateError("no round has been learned: there is none to draw")
        return restore(self.spec, self._kept)

    def predict(self, x: ArrayLike, *, lags: ArrayLike | None = None) -> Forecast:
        return self.learner.predict(x, lags=lags)

    def play(
        self,
        x: ArrayLike,
        y: float,
        *,
        choices: bytes | None = None,
        lags: ArrayLike | None = None,
        weight: float = 1.0,
    ) -> Round:
        return self.learner.play(x, y, choices=choices, lags=lags, weight=weight)

    def learn(self, played: Round) -> None:
        self._keeping(lambda: self.learner.learn(played))

    def update(self, x: ArrayLike, y: float, *, lags: ArrayLike | None = None, weight: float = 1.0) -> RoundInfo:
        return self._keeping(lambda: self.learner.update(x, y, lags=lags, weight=weight))

    def replay(
        self,
        x: ArrayLike,
        y: float,
        *,
        choices: bytes,
        value: float,
        lags: ArrayLike | None = None,
        weight: float = 1.0,
    ) -> Round:
        return self._keeping(lambda: self.learner.replay(x, y, choices=choices, value=value, lags=lags, weight=weight))

    def run(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        choices: bytes | None = None,
        lags: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> BlockInfo:
        """Like `OnlineLearner.run`, split before each round whose state is kept."""
        lags = None if lags is None else as_numbers(lags, "lags", "lags")
        X, y = self.learner.check_rows(X, y, lags)
        weights = None if weight is None else checked_weights(weight, len(y))
        parts: list[BlockInfo] = []
        start = 0
        while start < len(y) or not parts:
            # A state can be kept only before the first round of a part.
            following = self._after(self._next) if self._next == self.t + 1 else self._next
            stop = min(len(y), start + following - self.t - 1)
            part_choices = choices
            if choices is not None and stop < len(y):
                part_choices, choices = _first_frame(choices)
            rows = slice(start, stop)
            part = partial(
                self.learner.run,
                X[rows],
                y[rows],
                choices=part_choices,
                lags=None if lags is None else lags[rows],
                weight=None if weights is None else weights[rows],
            )
            parts.append(self._keeping(part))
            start = stop
        return _joined(parts)

    def state(self) -> dict[str, Stored]:
        """Copies of every array, including the kept state; together with the spec they determine the learner."""
        kept = {f"{RESERVOIR}{name}": array.copy() for name, array in self._kept.items()}
        return self.learner.state() | kept | {f"{RESERVOIR}round": np.array(float(self._round))}

    def has_long_round(self, rounds: int = 1) -> bool:
        return self.learner.has_long_round(rounds)

    @property
    def conditioning(self) -> float:
        return self.learner.conditioning

    def copy(self) -> ReservoirLearner:
        """An independent copy in the same state. The kept state is shared, since neither writes to it."""
        other = ReservoirLearner.__new__(ReservoirLearner)
        other.__dict__ |= self.__dict__
        other.learner, other._rng = self.learner.copy(), RoundRng(self.spec.seed, "reservoir")
        return other

    __copy__ = copy

    def describe(self) -> dict[str, float]:
        """The learner's numbers, and `kept_round`."""
        return self.learner.describe() | {"kept_round": self._round}

    def standing(self) -> Standing | None:
        """The `standing` of the learner."""
        return self.learner.standing()

    @property
    def nbytes(self) -> int:
        """Memory taken by the state, including the kept one, in bytes."""
        return self.learner.nbytes + sum(array.nbytes for array in self._kept.values())

    def _keeping(self, learn: Callable[[], T]) -> T:
        """Call `learn`, which learns one or more rounds; keep the state before the first if it is the next one due."""
        before = self.learner.t
        if before + 1 != self._next:
            return learn()
        kept = self.learner.state()
        try:
            return learn()
        finally:
            # A failing block may have learned its first rounds, and an empty block learns none.
            if self.learner.t > before:
                self._round, self._kept = self._next, kept
                self._next = self._after(self._round)

    def _after(self, round: int) -> int:
        """The next round to keep after `round`."""
        self._rng.at(round)
        u = 1.0 - self._rng.uniforms(1)[0]
        return math.floor(round / u) + 1


@final
class FrozenLearner:
    """A fixed predictor: it predicts as a learner did at one of its rounds, and learns nothing.

    With `lags` in the spec it keeps using the lags of that round; pass newer truths as `lags=`.
    """

    def __init__(self, learner: OnlineLearner, rule: FreezeRule = "last") -> None:
        """Take ownership of the learner, which must not be used elsewhere."""
        self._learner = learner
        self.spec = learner.spec
        self.dim = learner.dim
        self.target = learner.target
        self.loss = learner.loss
        self.rule = rule

    @property
    def t(self) -> int:
        """Rounds learned up to the frozen state."""
        return self._learner.t

    @property
    def lags(self) -> F64:
        return self._learner.lags

    def predict(self, x: ArrayLike, *, lags: ArrayLike | None = None) -> Forecast:
        """The forecast for x, shape (d,). Raises ShapeError, NonFiniteError, LabelError."""
        return self._learner.predict(x, lags=lags)

    def update(self, *_: Any, **__: Any) -> NoReturn:
        """Raises FrozenError, as do `play`, `learn`, `replay` and `run`."""
        raise FrozenError("this learner is frozen: it predicts, and learns nothing")

    play = learn = replay = run = update

    def state(self) -> dict[str, Stored]:
        """Copies of every array; `FrozenLearner(restore(spec, arrays))` is this predictor."""
        return self._learner.state()

    def has_long_round(self, rounds: int = 1) -> bool:
        return False

    @property
    def conditioning(self) -> float:
        return self._learner.conditioning

    def copy(self) -> FrozenLearner:
        """Return self, since nothing changes it."""
        return self

    def describe(self) -> dict[str, float]:
        return self._learner.describe()

    def standing(self) -> Standing | None:
        """The `standing` of the frozen state."""
        return self._learner.standing()

    @property
    def nbytes(self) -> int:
        return self._learner.nbytes


def freeze(learner: OnlineLearner | ReservoirLearner, rule: FreezeRule = "last") -> FrozenLearner:
    """A fixed predictor made from a learner; the learner itself is not changed.

    Parameters
    ----------
    rule : "last" or "uniform"
        The current state, or the state before a uniformly drawn round; the latter needs a `ReservoirLearner`.

    Raises
    ------
    ConfigError for any other rule; StateError for "uniform" without a reservoir or before the first round.

    Notes
    -----
    Freezing again at the same t gives the same predictor: the drawn round depends only on the seed and t.

    References: [cesabianchi2004] theorem 1.

    Examples
    --------
    >>> learner = create({"kind": "mean"}, dim=1)
    >>> _ = learner.update(np.zeros(1), 3.0)
    >>> frozen = freeze(learner)
    >>> _ = learner.update(np.zeros(1), 9.0)
    >>> frozen.predict(np.zeros(1)).value
    3.0
    """
    if rule == "last":
        online = learner.learner if isinstance(learner, ReservoirLearner) else learner
        return FrozenLearner(online.copy(), rule)
    if rule != "uniform":
        raise ConfigError(f"unknown rule {rule!r}; the rules are 'last' and 'uniform'")
    if not isinstance(learner, ReservoirLearner):
        raise StateError("only a ReservoirLearner keeps a state to draw; freeze the last one")
    return FrozenLearner(learner.kept(), rule)


def _joined(parts: list[BlockInfo]) -> BlockInfo:
    """One block joined from its parts. The choices of every part but the last are prefixed with their length."""
    probabilities = [part.probabilities for part in parts if part.probabilities is not None]
    frames = [_LENGTH.pack(len(part.choices)) + part.choices for part in parts[:-1]]
    return BlockInfo(
        parts[-1].t,
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.losses for part in parts]),
        joined_probabilities(probabilities) if len(probabilities) == len(parts) else None,
        b"".join(frames) + parts[-1].choices,
    )


def _first_frame(choices: bytes) -> tuple[bytes, bytes]:
    """The choices of the first part, and the rest. Raises ReplayDivergence."""
    if len(choices) < _LENGTH.size:
        raise ReplayDivergence("the choices are not those of a block with a reservoir")
    (length,) = _LENGTH.unpack_from(choices)
    end = _LENGTH.size + length
    return choices[_LENGTH.size : end], choices[end:]
