"""Kernels and losses registered from outside keep their contracts and work in learners; broken ones are caught."""

from __future__ import annotations

import json
import math
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from pydantic import Field

from okl_core import Kernel, Loss, catalogue, create, diagnostics, parse_spec, register_kernel, register_loss
from okl_core.contract.agreement import ContractViolation
from okl_core.contract.checks import check_learner
from okl_core.contract.loss_checks import LOSS_CHECKS, check_loss
from okl_core.contract.subject import small_stream
from okl_core.errors import ConfigError
from okl_core.kernels.kernel_checks import KERNEL_CHECKS, check_kernel
from okl_core.kernels.kernels import KERNELS, Linear
from okl_core.kernels.points import Points
from okl_core.losses import LOSSES, Hinge, Logistic, Squared
from okl_core.types import F64, Target

TAU = 0.8


class Cosine(Kernel):
    """The cosine of the angle between x and z, to a power; 0 for the zero vector."""

    kind: Literal["cosine"] = "cosine"
    translation_invariant: ClassVar[bool] = False
    power: int = Field(default=1, ge=1, description="Larger ones tell more angles apart.")

    def diag(self, X: F64) -> F64:
        return (X != 0.0).any(axis=1).astype(float)

    def encoded_block(self, S: Points, X: F64) -> F64:
        A, B = (Z / np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), 1e-300) for Z in (S.coordinates(), X))
        return (A @ B.T) ** self.power


class Pinball(Loss):
    """max(tau (y - a), (1 - tau)(a - y)): its best constant is the tau-quantile of the truths."""

    name: ClassVar[str] = "pinball"
    target: ClassVar[Target] = "real"
    kink: ClassVar[bool] = True

    def value(self, a: float, y: float) -> float:
        return max(TAU * (y - a), (1.0 - TAU) * (a - y))

    def values(self, a: F64, y: F64) -> F64:
        return np.maximum(TAU * (y - a), (1.0 - TAU) * (a - y))

    def derivative(self, a: float, y: float) -> float:
        return self.side(a, y, abs(a - y) > 1e-10 * abs(y))

    def side(self, a: float, y: float, is_active: bool) -> float:
        return (-TAU if a < y else 1.0 - TAU) if is_active else 0.0

    def curvature(self, C: float) -> float:
        return 0.0

    def weight(self, a: float, y: float, C: float) -> float:
        return 0.0

    def lipschitz(self, C: float) -> float:
        return max(TAU, 1.0 - TAU)

    def conjugate(self, p: F64, y: F64, C: float) -> F64:
        if math.isinf(C):
            return np.clip(p, -TAU, 1.0 - TAU) * y
        a = np.where(p < -TAU, -C, np.where(p > 1.0 - TAU, C, np.clip(y, -C, C)))
        return p * a - self.values(a, y)

    def lines(self, y: F64) -> tuple[F64, F64]:
        signs = np.array([[TAU], [TAU - 1.0]])
        return signs * y, -signs * np.ones_like(y)

    def slopes(self, u: F64, y: F64) -> tuple[F64, F64]:
        return np.ones_like(u), np.zeros_like(u)


NEWTON = {"loss": "pinball", "kernel": {"kind": "cosine", "power": 3}, "step": "inverse-sqrt"}
CONFIGS: dict[str, dict[str, Any]] = {
    "pros-n-kons": NEWTON,
    "kernel-ogd": {"loss": "pinball", "kernel": {"kind": "cosine"}},
    "pool": {"truth": "numbers", "experts": [{"kind": "pros-n-kons", "config": NEWTON}]},
}


@pytest.fixture(autouse=True)
def cosine_and_pinball(own_registry: None) -> None:
    register_kernel(Cosine)
    register_loss(Pinball())


def test_they_keep_their_contracts() -> None:
    check_loss(LOSSES["pinball"])
    check_kernel(Cosine(power=3))


@pytest.mark.parametrize("kind", CONFIGS)
def test_learners_take_them(kind: str) -> None:
    check_learner(kind, CONFIGS[kind], rounds=60)


def test_the_loss_is_the_one_that_is_learned() -> None:
    X, _ = small_stream("real", (-1.0, 1.0), 3, 600)
    X[:, 2] = 1.0
    y = np.clip(0.5 * X[:, 0] + 0.2 * np.random.default_rng(0).standard_normal(600), -1.0, 1.0)
    values = create({"kind": "pros-n-kons", "config": NEWTON | {"clip": 1.0}}, 3).run(X, y).values
    assert np.mean(y[300:] < values[300:]) == pytest.approx(TAU, abs=0.1)


@pytest.mark.parametrize(
    "restricted", [{"regularization": 0.1}, {"radius": 2.0}, {"clip": 0.5}, {"radius": 1.0, "clip": 0.7}]
)
def test_the_best_function_in_hindsight_is_found(restricted: dict[str, float]) -> None:
    X, y = small_stream("real", (-1.0, 1.0), 3, 80)
    best = diagnostics.best_in_hindsight(Cosine(power=2), X, y, "pinball", **restricted)
    assert abs(best.gap) <= 1e-7 * max(1.0, best.objective)


def test_the_catalogue_lists_them() -> None:
    [entry] = [entry for entry in catalogue() if entry["kind"] == "kons"]
    schema = json.loads(json.dumps(entry["config_schema"]))
    assert "pinball" in schema["properties"]["loss"]["enum"]
    assert schema["properties"]["kernel"]["discriminator"]["mapping"]["cosine"] == "#/$defs/Cosine"
    assert schema["$defs"]["Cosine"]["properties"]["power"]["minimum"] == 1


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"kernel": {"kind": "cosine", "power": 0}}, ("config", "kernel", "power")),
        ({"kernel": {"kind": "cosine", "sigma": 1.0}}, ("config", "kernel", "sigma")),
        ({"kernel": {"kind": "cosines"}}, ("config", "kernel")),
        ({"loss": "pin-ball"}, ("config", "loss")),
    ],
)
def test_wrong_values_are_told_with_their_place(config: dict[str, Any], path: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_spec({"kind": "pros-n-kons", "config": config})
    assert [found for found, _ in caught.value.errors] == [path]


class Sum(Kernel):
    """The sum of any registered kernels."""

    kind: Literal["sum"] = "sum"
    translation_invariant: ClassVar[bool] = False
    parts: list[Kernel] = Field(min_length=1, description="Summands.")

    def diag(self, X: F64) -> F64:
        return np.sum([part.diag(X) for part in self.parts], axis=0)

    def encoded_block(self, S: Points, X: F64) -> F64:
        return np.sum([part.block(S.coordinates(), X) for part in self.parts], axis=0)


def test_a_kernel_may_be_made_of_kernels() -> None:
    register_kernel(Sum)
    parts: list[dict[str, Any]] = [{"kind": "gaussian", "sigma": 2.0}, {"kind": "sum", "parts": [{"kind": "cosine"}]}]
    config = {"kernel": {"kind": "sum", "parts": parts}}
    kernel = parse_spec({"kind": "kons", "config": config})[2].model_dump()["kernel"]
    assert kernel["parts"][1]["parts"] == [{"kind": "cosine", "power": 1}]
    check_kernel(Sum.model_validate(kernel))
    check_learner("kons", config, rounds=60)
    parts[1]["parts"][0]["power"] = 0
    with pytest.raises(ConfigError) as caught:
        parse_spec({"kind": "kons", "config": config})
    assert caught.value.errors[0][0] == ("config", "kernel", "parts", 1, "parts", 0, "power")
    [entry] = [entry for entry in catalogue() if entry["kind"] == "kons"]
    assert entry["config_schema"]["$defs"]["Sum"]["properties"]["parts"]["minItems"] == 1


def test_a_name_is_given_once() -> None:
    assert register_kernel(Cosine) is Cosine
    assert register_loss(Pinball()) is LOSSES["pinball"]
    for cls in (
        type("Other", (Cosine,), {}),
        Kernel,
        type("Nameless", (Linear,), {"__annotations__": {"kind": "str"}}),
    ):
        with pytest.raises(ConfigError):
            register_kernel(cls)
    with pytest.raises(ConfigError, match="two losses are called 'pinball'"):
        register_loss(type("Other", (Pinball,), {})())
    assert (KERNELS["cosine"], type(LOSSES["pinball"])) == (Cosine, Pinball)


def changed(of: type, **members: Any) -> Any:
    """An instance of a subclass with these members overridden."""
    return type(f"Changed{of.__name__}", (of,), members)()


BROKEN_LOSSES: dict[str, list[Loss]] = {
    "check_name": [changed(Squared, name="Squared Loss"), changed(Squared, target="class")],
    "check_values": [changed(Squared, values=lambda self, a, y: np.abs(a - y))],
    "check_derivative": [changed(Squared, derivative=lambda self, a, y: a - y)],
    "check_kink": [changed(Hinge, kink=False), changed(Squared, kink=True), changed(Hinge, side=Loss.side)],
    "check_flat_part": [changed(Squared, has_flat_part=False)],
    "check_margin": [changed(Squared, has_margin=True)],
    "check_slopes": [
        changed(Logistic, slopes=Hinge.slopes),
        changed(Squared, slopes=lambda self, u, y: (2.0 * (u - y), np.ones_like(u))),
        changed(Hinge, lines=lambda self, y: (np.zeros((1, len(y))), -y[None, :])),
    ],
    "check_curvature": [changed(Hinge, curvature=Logistic.curvature), changed(Logistic, weight=Squared.weight)],
    "check_lipschitz": [changed(Squared, lipschitz=Hinge.lipschitz)],
    "check_probability": [
        changed(Logistic, probability=lambda self, a: a),
        changed(Logistic, probability=lambda self, a: 0.5 if a > 0.0 else None),
        changed(Logistic, probability=lambda self, a: Logistic.probability(self, -a)),
    ],
    "check_conjugate": [
        changed(Squared, conjugate=lambda self, p, y, C: p * y),
        changed(Squared, conjugate=lambda self, p, y, C: p * y + p * p),
        changed(Hinge, conjugate=lambda self, p, y, C: np.full(len(p), np.nan)),
    ],
    "check_far_predictions": [changed(Squared, value=lambda self, a, y: (a - y) ** 2 if abs(a) < 1e3 else math.inf)],
}


@pytest.mark.parametrize("check", LOSS_CHECKS, ids=lambda check: check.__name__)
def test_a_broken_loss_is_caught(check: Any) -> None:
    for loss in BROKEN_LOSSES[check.__name__]:
        with pytest.raises(ContractViolation):
            check(loss)
        with pytest.raises(ContractViolation, match=check.__name__):
            check_loss(loss)


class Odd(Cosine):
    shift: float = 0.0


BROKEN_KERNELS: dict[str, list[Kernel]] = {
    "check_kind": [Odd(), changed(Cosine, model_dump=lambda self: {"kind": "My Kernel"})],
    "check_symmetric": [changed(Cosine, encoded_block=lambda self, S, X: np.outer(S.coordinates()[:, 0], X[:, 1]))],
    "check_positive_semidefinite": [changed(Cosine, encoded_block=lambda self, S, X: -S.coordinates() @ X.T)],
    "check_ways_agree": [
        changed(Cosine, encoded_row=lambda self, S, row: np.zeros(len(S))),
        changed(Cosine, at=lambda self, x: 2.0),
        changed(Cosine, diag=lambda self, X: np.full(len(X), 2.0)),
    ],
    "check_points": [changed(Cosine, encoded_block=lambda self, S, X: np.full((max(1, len(S)), len(X)), 1.0))],
    "check_inputs_are_kept": [changed(Linear, diag=lambda self, X: np.multiply(X, 2.0, out=X)[:, 0])],
    "check_far_points": [
        changed(Linear, diag=lambda self, X: np.einsum("ij,ij->i", X, X) ** 2),
        changed(Cosine, encoded_block=lambda self, S, X: S.coordinates() @ X.T),
    ],
}


@pytest.mark.parametrize("check", KERNEL_CHECKS, ids=lambda check: check.__name__)
def test_a_broken_kernel_is_caught(check: Any) -> None:
    for kernel in BROKEN_KERNELS[check.__name__]:
        with pytest.raises(ContractViolation):
            check(kernel)
        with pytest.raises(ContractViolation, match=check.__name__):
            check_kernel(kernel)
