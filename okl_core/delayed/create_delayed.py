"""The delayed forms of learners, made from their specs."""

from __future__ import annotations

from okl_core.contract.learner import LearnerSpec, Spec, parse_spec
from okl_core.delayed.delayed_aar import DelayedAar
from okl_core.delayed.delayed_learner import DelayedLearner
from okl_core.delayed.delayed_newton import DelayedNewton
from okl_core.errors import ConfigError, ShapeError, unresolved
from okl_core.learners.kernel_ridge import RidgeConfig
from okl_core.learners.kons import KonsConfig


def create_delayed(spec: Spec, dim: int) -> DelayedLearner:
    """The delayed form of `kernel-aar` or `kons`, for inputs in R^dim, dim >= 1.

    Its forecasts are issued with a number, by which a truth is learned whenever it comes. `kernel-aar` needs a `clip`, `kons`
    a step that follows the curvature; neither takes a window or lags here. Raises ConfigError, UnknownKind, ShapeError.

    Examples
    --------
    >>> learner = create_delayed({"kind": "kernel-aar", "config": {"clip": 1.0}}, dim=1)
    >>> first, second = learner.issue([0.0]), learner.issue([0.0])
    >>> learner.learn(second.id, 1.0)
    1.0
    >>> round(learner.issue([0.0]).value, 4), learner.waiting
    (0.25, (1, 3))
    """
    parsed, _, config = parse_spec(spec)
    if dim < 1:
        raise ShapeError(f"dim is {dim}; a learner needs at least one input")
    if waiting := config.waiting():
        raise unresolved(waiting)
    if parsed.lags:
        raise _refused(parsed, "lags", "a truth that is late is no input of the rounds before it; leave `lags` out")
    if isinstance(config, RidgeConfig | KonsConfig) and config.window is not None:
        raise _refused(parsed, "window", "the delayed form remembers all rounds; leave `window` out", "config")
    if isinstance(config, RidgeConfig) and parsed.kind == "kernel-aar":
        if config.clip is None:
            raise _refused(parsed, "clip", "the delayed form needs it: the largest truth", "config")
        return DelayedAar(config.kernel, config.regularization, config.clip, dim)
    if isinstance(config, KonsConfig):
        if config.step not in ("curvature", "half-curvature", "adaptive"):
            told = 'the delayed form needs one that follows the curvature: "adaptive", "curvature" or "half-curvature"'
            raise _refused(parsed, "step", told, "config")
        return DelayedNewton(config.kernel, config.regularization, config.rule, dim)
    # A learned half-life has made a pool of it.
    kind = spec if isinstance(spec, str) else spec.kind if isinstance(spec, LearnerSpec) else spec["kind"]
    told = f"{kind} has no delayed form; kernel-aar and kons have"
    raise ConfigError(told, [(("kind",), told)])


def _refused(spec: LearnerSpec, field: str, told: str, *under: str) -> ConfigError:
    return ConfigError(f"{spec.kind}: {field}: {told}", [((*under, field), told)])
