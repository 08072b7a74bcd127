"""Online kernel learning: learners that predict, observe, and are never retrained.

Each public name imports its module on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from okl_core.contract.catalogue import catalogue
    from okl_core.contract.facade import OnlineLearner, create, restore
    from okl_core.contract.frozen import FrozenLearner, ReservoirLearner, freeze
    from okl_core.contract.learner import (
        Learner,
        LearnerSpec,
        Spec,
        get_learner,
        learner_kinds,
        parse_spec,
        register,
        resolve,
        waits_for_inputs,
    )
    from okl_core.delayed.create_delayed import create_delayed
    from okl_core.delayed.delayed_learner import DelayedLearner, IssuedForecast
    from okl_core.kernels.kernels import Gaussian, Kernel, Laplacian, Linear, Matern, Polynomial, register_kernel
    from okl_core.losses import Loss, register_loss
    from okl_core.metrics.gradient_outer_product import gradient_outer_product
    from okl_core.types import BlockInfo, Forecast, RoundInfo

__all__ = [
    "BlockInfo",
    "DelayedLearner",
    "Forecast",
    "FrozenLearner",
    "Gaussian",
    "IssuedForecast",
    "Kernel",
    "Laplacian",
    "Learner",
    "LearnerSpec",
    "Linear",
    "Loss",
    "Matern",
    "OnlineLearner",
    "Polynomial",
    "ReservoirLearner",
    "RoundInfo",
    "Spec",
    "catalogue",
    "create",
    "create_delayed",
    "freeze",
    "get_learner",
    "gradient_outer_product",
    "learner_kinds",
    "parse_spec",
    "register",
    "register_kernel",
    "register_loss",
    "resolve",
    "restore",
    "waits_for_inputs",
]

_WHERE: Final = {
    "BlockInfo": "okl_core.types",
    "DelayedLearner": "okl_core.delayed.delayed_learner",
    "Forecast": "okl_core.types",
    "FrozenLearner": "okl_core.contract.frozen",
    "Gaussian": "okl_core.kernels.kernels",
    "IssuedForecast": "okl_core.delayed.delayed_learner",
    "Kernel": "okl_core.kernels.kernels",
    "Laplacian": "okl_core.kernels.kernels",
    "Learner": "okl_core.contract.learner",
    "LearnerSpec": "okl_core.contract.learner",
    "Linear": "okl_core.kernels.kernels",
    "Loss": "okl_core.losses",
    "Matern": "okl_core.kernels.kernels",
    "OnlineLearner": "okl_core.contract.facade",
    "Polynomial": "okl_core.kernels.kernels",
    "ReservoirLearner": "okl_core.contract.frozen",
    "RoundInfo": "okl_core.types",
    "Spec": "okl_core.contract.learner",
    "catalogue": "okl_core.contract.catalogue",
    "create": "okl_core.contract.facade",
    "create_delayed": "okl_core.delayed.create_delayed",
    "freeze": "okl_core.contract.frozen",
    "get_learner": "okl_core.contract.learner",
    "gradient_outer_product": "okl_core.metrics.gradient_outer_product",
    "learner_kinds": "okl_core.contract.learner",
    "parse_spec": "okl_core.contract.learner",
    "register": "okl_core.contract.learner",
    "register_kernel": "okl_core.kernels.kernels",
    "register_loss": "okl_core.losses",
    "resolve": "okl_core.contract.learner",
    "restore": "okl_core.contract.facade",
    "waits_for_inputs": "okl_core.contract.learner",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'okl_core' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
