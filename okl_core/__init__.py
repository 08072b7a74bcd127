"""Online kernel learning: learners that predict, observe, and are never retrained."""

from okl_core.contract.facade import OnlineLearner, create, restore
from okl_core.contract.frozen import FrozenLearner, ReservoirLearner, freeze
from okl_core.contract.learner import (
    Learner,
    LearnerSpec,
    Spec,
    catalogue,
    get_learner,
    learner_kinds,
    parse_spec,
    register,
    resolve,
    waits_for_inputs,
)
from okl_core.kernels.kernels import Gaussian, Kernel, Laplacian, Linear, Matern, Polynomial, register_kernel
from okl_core.losses import Loss, register_loss
from okl_core.metrics.gradient_outer_product import gradient_outer_product
from okl_core.types import BlockInfo, Forecast, RoundInfo

__all__ = [
    "BlockInfo",
    "Forecast",
    "FrozenLearner",
    "Gaussian",
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
