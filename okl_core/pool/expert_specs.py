"""What a pool is told of its experts, and which it has if nothing is told."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from okl_core.contract.lags import MAX_LAGS
from okl_core.contract.learner import from_kind, or_a_kind, parse_spec, taken_dim
from okl_core.errors import ConfigError

Truth = Literal["labels", "numbers"]


class ExpertSpec(BaseModel):
    """A learner in a pool, or, with `sigmas`, one with a Gaussian kernel of each of these length scales. A kind alone
    is short for it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    kind: str = Field(description="Wire name of the learner; not pool.")
    config: dict[str, Any] = Field(default_factory=dict, description="Its parameters.")
    lags: int = Field(default=0, ge=0, le=MAX_LAGS, description="Past truths that it is given beside the input.")
    sigmas: list[float] | None = Field(
        default=None, min_length=1, fail_fast=True, description="A grid of length scales."
    )

    _from_kind = model_validator(mode="before")(from_kind)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return or_a_kind(handler(schema), handler)

    @model_validator(mode="after")
    def _is_a_learner(self) -> Self:
        if self.kind == "pool":
            raise ValueError("a pool is no expert of a pool")
        if self.sigmas is not None and "kernel" in self.config:
            raise ValueError("give either sigmas, of Gaussian kernels, or a kernel in the config")
        for expert in self.expand():
            try:
                _, _, config = parse_spec({"kind": expert.kind, "config": expert.config, "lags": expert.lags})
            except ConfigError as error:
                # As a ValueError it is told with the expert's place in the list.
                raise ValueError(str(error)) from error
            for path, word in config.waiting():
                raise ValueError(f'an expert sees no data before the first round: give {path[-1]} itself, not "{word}"')
        return self

    def name(self, i: int) -> str:
        """A name for the i-th expert of a pool."""
        sigma = self.config.get("kernel", {}).get("sigma")
        scale = f"_sigma_{sigma:g}" if isinstance(sigma, float | int) else ""
        return f"{i}_{self.kind}{scale}" + (f"_lags_{self.lags}" if self.lags else "")

    @property
    def dim(self) -> int | None:
        """The only number of inputs that it takes, its lags apart; None: any."""
        _, learner, config = parse_spec({"kind": self.kind, "config": self.config})
        dim = taken_dim(learner, config)
        return None if dim is None else dim - self.lags

    def expand(self) -> list[ExpertSpec]:
        """One expert each."""
        if self.sigmas is None:
            return [self]
        kernels = [{"kind": "gaussian", "sigma": sigma} for sigma in self.sigmas]
        return [
            ExpertSpec(kind=self.kind, config=self.config | {"kernel": kernel}, lags=self.lags) for kernel in kernels
        ]


def trivial_experts(truth: Truth) -> list[ExpertSpec]:
    return [ExpertSpec(kind="majority" if truth == "labels" else "mean"), ExpertSpec(kind="last-label")]


def default_experts(truth: Truth, clip: float) -> list[ExpertSpec]:
    """Kernel and linear, first- and second-order, with and without forgetting and lags."""
    loss = "squared-hinge" if truth == "labels" else "squared"
    newton: dict[str, Any] = {"loss": loss, "clip": 2.0 * clip}
    forgetful = newton | {"half_life": 500}
    first_order: dict[str, Any] = {"loss": "hinge"} if truth == "labels" else {"loss": "squared", "clip": clip}
    linear = newton | {"step": "adaptive", "regularization": 0.1}
    return [
        ExpertSpec(kind="pros-n-kons", config=newton, sigmas=[0.5, 1.0, 2.0, 4.0, 8.0]),
        ExpertSpec(kind="pros-n-kons", config=forgetful, sigmas=[0.5, 2.0]),
        ExpertSpec(kind="pros-n-kons", config=forgetful, lags=1, sigmas=[0.5, 1.0, 2.0]),
        ExpertSpec(kind="fogd", config=first_order, sigmas=[1.0]),
        ExpertSpec(kind="ons", config=linear),
        ExpertSpec(kind="ons", config=linear, lags=1),
    ]
