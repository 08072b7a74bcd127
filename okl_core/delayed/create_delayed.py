"""Creation of the delayed forms of learners from their specs."""

from __future__ import annotations

from okl_core.contract.arguments import checked_dim
from okl_core.contract.learner import LearnerSpec, Spec, parse_spec
from okl_core.delayed.delayed_aar import DelayedAar
from okl_core.delayed.delayed_learner import DelayedLearner
from okl_core.delayed.delayed_newton import DelayedNewton
from okl_core.errors import ConfigError, unresolved
from okl_core.learners.kernel_ridge import RidgeConfig
from okl_core.learners.kons import KonsConfig

FORMS = ("kernel-aar", "kons")


def create_delayed(spec: Spec, dim: int) -> DelayedLearner:
    """The delayed form of `kernel-aar` or `kons`, for inputs in R^dim, dim >= 1.

    Each forecast is issued with an id, by which its truth is learned whenever it arrives. `kernel-aar` needs a `clip`, `kons`
    a step that follows the curvature; neither may forget or have lags. Raises ConfigError, UnknownKind, ShapeError.

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
    kind = spec if isinstance(spec, str) else spec.kind if isinstance(spec, LearnerSpec) else spec["kind"]
    if kind not in FORMS:
        message = f"{kind} has no delayed form; {' and '.join(FORMS)} have"
        raise ConfigError(message, [(("kind",), message)])
    dim = checked_dim(dim)
    if waiting := config.waiting():
        raise unresolved(waiting)
    if parsed.lags:
        raise _refused(kind, "lags", "a truth that is late is no input of the rounds before it; leave `lags` out")
    # With a half-life to be learned, the config is that of a pool.
    if not isinstance(config, RidgeConfig | KonsConfig) or config.memory is not None:
        name = "window" if isinstance(config, RidgeConfig | KonsConfig) and config.window is not None else "half_life"
        raise _refused(kind, name, f"the delayed form remembers all rounds; leave `{name}` out", "config")
    if isinstance(config, RidgeConfig):
        if config.clip is None:
            raise _refused(kind, "clip", "the delayed form needs it: the largest truth", "config")
        return DelayedAar(config.kernel, config.regularization, config.clip, dim)
    if config.step not in ("curvature", "half-curvature", "adaptive"):
        message = 'the delayed form needs one that follows the curvature: "adaptive", "curvature" or "half-curvature"'
        raise _refused(kind, "step", message, "config")
    return DelayedNewton(config.kernel, config.regularization, config.rule, dim)


def _refused(kind: str, field: str, message: str, *under: str) -> ConfigError:
    return ConfigError(f"{kind}: {field}: {message}", [((*under, field), message)])
