r"""From an online learner to a fixed predictor: its present state, or the state before a round drawn uniformly.

On independent draws (x_t, y_t) of one distribution the forecast of round r is that of a function chosen before (x_r, y_r)
was seen. If r is uniform on 1 .. T, the expected loss of the function f_r on a new draw is the mean of the expected losses
of the rounds, hence

    E loss(f_r) = (1 / T) E sum_t loss_t <= E loss(f) + (1 / T) E regret(f)   for every f.

The present state has no such guarantee, though it is mostly the better one.

r is drawn without knowing T: the state before round t takes the place of the one kept with probability 1 / t. Then the
next round kept after r is beyond n with probability r / n, and is drawn at once, as floor(r / u) + 1 with u uniform on
(0, 1]: some log T coins and copies for T rounds, and one comparison in all other rounds.

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

from okl_core.contract.facade import OnlineLearner, checked_weights, create, restore
from okl_core.contract.given import as_numbers
from okl_core.contract.learner import Spec
from okl_core.contract.probabilities import joined_probabilities
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, FrozenError, ReplayDivergence, StateError, StateFormatError
from okl_core.types import F64, BlockInfo, Forecast, Round, RoundInfo, Standing, Stored

T = TypeVar("T")

Rule = Literal["last", "uniform"]

RESERVOIR = "reservoir/"
"""Prefix of the arrays that `state` has beside those of the learner; no field of a state can begin with it."""

_LENGTH = struct.Struct("<I")


@final
class ReservoirLearner:
    """An `OnlineLearner` that keeps the state before one of its rounds, drawn uniformly from those learned so far.

    Used like the learner, which it takes over. What is kept depends on the spec's seed and the number of rounds alone. A
    block is cut where a state is kept, and so gives what the learner's own block gives to 1e-9 only, with choices of another
    form: replay them here.

    Examples
    --------
    >>> learner = ReservoirLearner.create({"kind": "mean"}, dim=1)
    >>> _ = learner.run(np.zeros((100, 1)), np.arange(100.0))
    >>> frozen = freeze(learner, "uniform")
    >>> frozen.predict(np.zeros(1)).value == (frozen.t - 1) / 2
    True
    """

    def __init__(self, learner: OnlineLearner, round: int = 0, kept: Mapping[str, Stored] | None = None) -> None:
        """`kept`: the state before `round`. Raises StateError without one if rounds were learned already."""
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
    def restore(cls, spec: Spec, arrays: Mapping[str, Stored], dim: int) -> ReservoirLearner:
        """The learner whose `state()` gave these arrays. Raises StateFormatError."""
        own = {name: array for name, array in arrays.items() if not name.startswith(RESERVOIR)}
        kept = {name[len(RESERVOIR) :]: array for name, array in arrays.items() if name.startswith(RESERVOIR)}
        learner = restore(spec, own, dim)
        try:
            round = int(kept.pop("round").item())
        except (KeyError, ValueError) as error:
            raise StateFormatError(f"the state has no reservoir: {error}") from error
        # Read now, so that damage is not found only when it is frozen.
        is_fitting = restore(spec, kept, dim).t == round - 1 if kept else round == 0
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
        """The round before which the state that is kept was; 0 before the first round."""
        return self._round

    def kept(self) -> OnlineLearner:
        """The learner before `kept_round`, one of its own. Raises StateError before the first round."""
        if not self._round:
            raise StateError("no round was learned: there is none to draw")
        return restore(self.spec, self._kept, self.dim)

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
        """As `OnlineLearner.run`, in as many parts as there are states to keep."""
        lags = None if lags is None else as_numbers(lags, "lags", "lags")
        X, y = self.learner.check_rows(X, y, lags)
        weights = None if weight is None else checked_weights(weight, len(y))
        parts: list[BlockInfo] = []
        start = 0
        while start < len(y) or not parts:
            # The state is kept before the first round of a part only.
            following = self._after(self._next) if self._next == self.t + 1 else self._next
            stop = min(len(y), start + following - self.t - 1)
            own = choices
            if choices is not None and stop < len(y):
                own, choices = _first_frame(choices)
            rows = slice(start, stop)
            part = partial(
                self.learner.run,
                X[rows],
                y[rows],
                choices=own,
                lags=None if lags is None else lags[rows],
                weight=None if weights is None else weights[rows],
            )
            parts.append(self._keeping(part))
            start = stop
        return _joined(parts)

    def state(self) -> dict[str, Stored]:
        """Copies of every array of the state, the kept one among them; with the spec they are everything."""
        kept = {f"{RESERVOIR}{name}": array.copy() for name, array in self._kept.items()}
        return self.learner.state() | kept | {f"{RESERVOIR}round": np.array(float(self._round))}

    def has_long_round(self, rounds: int = 1) -> bool:
        return self.learner.has_long_round(rounds)

    @property
    def conditioning(self) -> float:
        return self.learner.conditioning

    def copy(self) -> ReservoirLearner:
        """One of its own in the same state. The state that is kept is written to by neither."""
        other = ReservoirLearner.__new__(ReservoirLearner)
        other.__dict__ |= self.__dict__
        other.learner, other._rng = self.learner.copy(), RoundRng(self.spec.seed, "reservoir")
        return other

    __copy__ = copy

    def describe(self) -> dict[str, float]:
        """What the learner tells of itself, and `kept_round`."""
        return self.learner.describe() | {"kept_round": self._round}

    def standing(self) -> Standing | None:
        """As that of `OnlineLearner`."""
        return self.learner.standing()

    @property
    def nbytes(self) -> int:
        """Memory that the state takes, the kept one included, in bytes."""
        return self.learner.nbytes + sum(array.nbytes for array in self._kept.values())

    def _keeping(self, learn: Callable[[], T]) -> T:
        """Learn one round or more; the state before the first of them is kept if it is the next to be."""
        before = self.learner.t
        if before + 1 != self._next:
            return learn()
        kept = self.learner.state()
        try:
            return learn()
        finally:
            # A block that fails may have learned its first rounds, and one without rounds learns none.
            if self.learner.t > before:
                self._round, self._kept = self._next, kept
                self._next = self._after(self._round)

    def _after(self, round: int) -> int:
        """The round kept next after `round`."""
        self._rng.at(round)
        u = 1.0 - self._rng.uniforms(1)[0]
        return math.floor(round / u) + 1


@final
class FrozenLearner:
    """A fixed predictor: it predicts as a learner did at one of its rounds, and learns nothing.

    With lags in its spec it goes on with those of that moment; who has newer truths gives them as `lags=`.
    """

    def __init__(self, learner: OnlineLearner, rule: Rule = "last") -> None:
        """Takes the learner over: nobody else is to hold it."""
        self._learner = learner
        self.spec = learner.spec
        self.dim = learner.dim
        self.target = learner.target
        self.loss = learner.loss
        self.rule = rule

    @property
    def t(self) -> int:
        """Rounds that were learned before it."""
        return self._learner.t

    @property
    def lags(self) -> F64:
        return self._learner.lags

    def predict(self, x: ArrayLike, *, lags: ArrayLike | None = None) -> Forecast:
        """The forecast for x, shape (d,). Raises ShapeError, NonFiniteError, LabelError."""
        return self._learner.predict(x, lags=lags)

    def update(self, *_: Any, **__: Any) -> NoReturn:
        """Raises FrozenError, and so do `play`, `learn`, `replay` and `run`."""
        raise FrozenError("this learner is frozen: it predicts, and learns nothing")

    play = learn = replay = run = update

    def state(self) -> dict[str, Stored]:
        """Copies of every array; `FrozenLearner(restore(spec, arrays, dim))` is this predictor."""
        return self._learner.state()

    def has_long_round(self, rounds: int = 1) -> bool:
        return False

    @property
    def conditioning(self) -> float:
        return self._learner.conditioning

    def copy(self) -> FrozenLearner:
        """Itself, since nothing changes it."""
        return self

    def describe(self) -> dict[str, float]:
        return self._learner.describe()

    def standing(self) -> Standing | None:
        """As that of `OnlineLearner`, as it was when it was frozen."""
        return self._learner.standing()

    @property
    def nbytes(self) -> int:
        return self._learner.nbytes


def freeze(learner: OnlineLearner | ReservoirLearner, rule: Rule = "last") -> FrozenLearner:
    """A fixed predictor from a learner, which goes on unchanged.

    Parameters
    ----------
    rule : "last" or "uniform"
        The present state; or the state before a round drawn uniformly from all, which needs a `ReservoirLearner`.

    Raises
    ------
    ConfigError for another rule; StateError for "uniform" where there is no reservoir, or no round yet.

    Notes
    -----
    Frozen again at the same round it is the same predictor: the drawn round depends on the seed and t alone.

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
        own = learner.learner if isinstance(learner, ReservoirLearner) else learner
        return FrozenLearner(own.copy(), rule)
    if rule != "uniform":
        raise ConfigError(f"there is no rule {rule!r}; freeze the state that is 'last', or a 'uniform' one")
    if not isinstance(learner, ReservoirLearner):
        raise StateError("only a ReservoirLearner keeps a state to draw; freeze the last one")
    return FrozenLearner(learner.kept(), rule)


def _joined(parts: list[BlockInfo]) -> BlockInfo:
    """One block from its parts. The choices of each part but the last are preceded by their length."""
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
