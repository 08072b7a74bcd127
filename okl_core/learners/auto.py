"""The learner to take if one knows nothing: of classes that grow, or of numbers of any size."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from okl_core.automatic.auto_config import AutoConfig
from okl_core.automatic.auto_state import (
    AutoRound,
    AutoState,
    Made,
    answer,
    check_truths,
    loss_of,
    made_in_turn,
    made_of,
)
from okl_core.automatic.class_mixture import TRIVIAL, ClassForecast, ClassMixture
from okl_core.automatic.number_mixture import TRIVIAL_NUMBERS, NumberForecast, NumberMixture
from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, MAX_CLASSES, REALS, BlockInfo, Forecast, Interval, Standing, Target


@final
@register
class Auto(Learner[AutoConfig, AutoState, AutoRound]):
    r"""The default for unknown streams: regressions of several kinds on one dictionary, stacked and mixed by their losses.

    The regressions (`okl_core.automatic.regressors`) share what is computed of an input, and one posterior serves all
    classes. Of classes it gives probabilities, of which e_t = 1 / (t + 1) is kept for a class never seen, if K grows; of
    numbers their mean.

    Notes
    -----
    Classes: the cumulative log-loss is at most that of each expert, the majority and the last label among them, on the
    rounds whose class was known, plus ln(1 / pi) + T ln(1 / (1 - s)), with pi = 1 / (2 (N - 1)), N experts and the share
    s = 0.001; if K grows, plus ln(T + 1) and ln(t + 1) for every class that is new in round t + 1.
    Numbers: from the second round on, the cumulative squared loss is at most that of the mean of the truths so far, and that
    of the last truth, plus 21 S^2, where S is the largest distance between a truth and one of these forecasts or the
    mixture's. Nothing is assumed of inputs or truths. Forecasts of numbers follow shift and scale of the truths.

    References: [zhdanov2013], [calandriello2017b] and [devroye1998] for the regressions; [rasmussen2006] and
    [duvenaud2011] for the kernel; [breiman1996] and [genest1986] for the stacks; [cesabianchi2006] for the bounds.

    Examples
    --------
    >>> from okl_core import create, resolve
    >>> X, y = np.array([[0.0], [1.0], [0.0], [1.0]]), np.array([0.0, 1.0, 0.0, 1.0])
    >>> learner = create(resolve({"kind": "auto"}, X, y), dim=1)
    >>> info = learner.run(X, y)
    >>> learner.predict(np.array([1.0])).label, round(sum(learner.predict(np.array([1.0])).probabilities), 2)
    (1, 0.8)
    """

    kind: ClassVar[str] = "auto"
    references: ClassVar[tuple[str, ...]] = (
        "zhdanov2013",
        "calandriello2017b",
        "rasmussen2006",
        "duvenaud2011",
        "devroye1998",
        "breiman1996",
        "genest1986",
        "cesabianchi2006",
    )
    config_type = AutoConfig
    state_type = AutoState

    def loss(self, config: AutoConfig) -> Loss:
        return LOSSES["squared" if config.truth == "numbers" else "logistic"]

    def target(self, config: AutoConfig) -> Target:
        return "real" if config.truth == "numbers" else "class"

    def truth_range(self, config: AutoConfig) -> Interval:
        return REALS if config.truth == "numbers" else (0.0, (config.classes or MAX_CLASSES) - 1.0)

    def init(self, config: AutoConfig, dim: int) -> AutoState:
        k, E = config.first_truths, len(config.regressors.names(dim))
        is_numbers = config.truth == "numbers"
        classes = None if is_numbers else ClassMixture.empty(E, k)
        return AutoState(
            0, config.regressors.init(dim, k), classes, NumberMixture.empty(E) if is_numbers else None, 0.0, 0.0
        )

    def predict(self, config: AutoConfig, state: AutoState, x: F64) -> Forecast:
        return answer(config, state, made_of(state, config.regressors.predict(state.regressors, x)))

    def play(self, config: AutoConfig, state: AutoState, x: F64, y: float, rng: RoundRng) -> AutoRound:
        check_truths(config, state, np.array([y]))
        turn = config.regressors.play(state.regressors, state.t + 1, x, rng)
        made = made_of(state, turn.F)
        forecast = answer(config, state, made)
        return AutoRound(state.t + 1, x, y, forecast, loss_of(state, forecast, y), rng.choices(), turn, made)

    def learn(self, config: AutoConfig, state: AutoState, played: AutoRound) -> None:
        regressors, turn, y = config.regressors, played.turn, played.y
        if state.classes is not None:
            if y == len(state.classes.counts):
                regressors.add_truths(state.regressors, 1)
                turn = turn.with_truths(1)
            one_hot = np.zeros(state.regressors.kernel.U.shape[1])
            one_hot[int(y)] = 1.0
            regressors.learn(state.regressors, played.t, turn, one_hot)
        else:
            state.first = y if state.t == 0 else state.first
            regressors.learn(state.regressors, played.t, turn, np.array([y - state.first]))
        self._weigh(state, played.made, y, played.loss)

    def _weigh(self, state: AutoState, made: Made, y: float, loss: float) -> None:
        """The mixture learns the truth of a round that the regressions have learned."""
        state.t += 1
        state.loss += loss
        if isinstance(made, NumberForecast) and state.numbers is not None:
            state.numbers.learn(made, state.t, y - state.first)
        elif state.classes is not None:
            if isinstance(made, ClassForecast) and y < len(state.classes.counts):
                state.classes.learn(made, int(y))
            else:
                state.classes.count(int(y))

    def run(self, config: AutoConfig, state: AutoState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        check_truths(config, state, y)
        n, start = len(y), 0
        K = 0 if state.classes is None else max(len(state.classes.counts), int(y.max(initial=-1.0)) + 1)
        values, losses, probabilities = np.empty(n), np.empty(n), np.zeros((n, K))
        while start < n:
            rows = slice(start, start + self._length(config, state, y[start:]))
            F = self._learn_block(config, state, X[rows], y[rows], rng)
            for i, made in enumerate(made_in_turn(state, F), start):
                forecast, truth = answer(config, state, made), y.item(i)
                loss = loss_of(state, forecast, truth)
                values[i], losses[i] = forecast.value, loss
                if forecast.probabilities is not None:
                    probabilities[i, : len(forecast.probabilities)] = forecast.probabilities
                self._weigh(state, made, truth, loss)
            start = rows.stop
        return BlockInfo(state.t, values, losses, None if state.classes is None else probabilities, rng.finish())

    def _length(self, config: AutoConfig, state: AutoState, y: F64) -> int:
        """Rounds that are learned at once: none but the last has a new class."""
        room = config.regressors.room(state.t, len(y))
        if state.classes is None:
            return room
        new = np.flatnonzero(y[:room] >= len(state.classes.counts))
        return int(new[0]) + 1 if len(new) else room

    def _learn_block(self, config: AutoConfig, state: AutoState, X: F64, y: F64, rng: RoundRng) -> F64:
        """The forecasts of the regressions, which learn n rounds."""
        regressors = config.regressors
        if state.classes is None:
            state.first = float(y[0]) if state.t == 0 else state.first
            Y = (y - state.first)[:, None]
        else:
            known = len(state.classes.counts)
            K = max(known, int(y.max()) + 1)
            if known < K:
                regressors.add_truths(state.regressors, K - known)
            Y = np.zeros((len(y), K))
            Y[np.arange(len(y)), y.astype(int)] = 1.0
        return regressors.learn_block(state.regressors, state.t + 1, X, Y, rng)

    def describe(self, config: AutoConfig, state: AutoState) -> dict[str, float]:
        parts = state.regressors
        description: dict[str, float] = {
            "t": state.t,
            "dictionary": len(parts.embedding.points),
            "bytes": state.nbytes,
            "loss": state.loss,
        }
        if state.classes is not None:
            description["classes"] = len(state.classes.counts)
        names, weights, *_ = self.standing(config, state)
        return description | {f"weight_{name}": weight for name, weight in zip(names, weights.tolist(), strict=True)}

    def standing(self, config: AutoConfig, state: AutoState) -> Standing:
        names = config.regressors.names(state.regressors.embedding.points.dim)
        if state.numbers is not None:
            return Standing((*names, *TRIVIAL_NUMBERS, "stack"), state.numbers.pi)
        assert state.classes is not None
        return Standing(("stack", *names, *TRIVIAL), state.classes.pi)

    def conditioning(self, config: AutoConfig, state: AutoState) -> float:
        return config.regressors.conditioning(state.regressors, state.t)

    def extra_work(self, config: AutoConfig, state: AutoState, rounds: int) -> float:
        size = len(state.regressors.fading) + rounds
        return config.regressors.forgetting.discount_work(state.t, rounds, size)

    def initial_bytes(self, config: AutoConfig, dim: int) -> int:
        # Which columns are explicit is known with the kernel.
        return 0 if config.waiting() else config.regressors.initial_bytes(dim)
