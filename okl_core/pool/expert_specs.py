"""The specification of a pool's experts, and the default experts."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from okl_core.contract.lags import MAX_LAGS
from okl_core.contract.learned_half_life import LEARNED, has_learned_half_life
from okl_core.contract.learner import from_kind, get_learner, or_a_kind, parse_spec, taken_dim
from okl_core.contract.wrong_fields import WrongInside
from okl_core.errors import ConfigError
from okl_core.second_order.forgetting import HalfLifeRounds
from okl_core.types import Target

Truth = Literal["labels", "numbers", "classes"]

TAUGHT: dict[Truth, tuple[Target, ...]] = {
    "labels": ("binary", "real", "any"),
    "numbers": ("real", "any"),
    "classes": ("class",),
}
"""Targets that an expert may have, by the truth of its pool."""

MAX_EXPERTS = 500
"""Maximum number of experts in a pool: each is validated with the pool, and may play in every round."""

HALF_LIVES: tuple[int | None, ...] = (16, 64, 256, 1024, 4096, None)
"""The grid of `"learned"`: any half-life in its range is within a factor of 2 of an entry."""


class ExpertSpec(BaseModel):
    """A learner in a pool, or a grid of learners. A kind alone is short for it.

    `sigmas` gives one learner per length scale of a Gaussian kernel, `half_lives` one per memory, both one per pair.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    kind: str = Field(description="Wire name of the learner; not pool.")
    config: dict[str, Any] = Field(default_factory=dict, description="Its parameters.")
    lags: int = Field(default=0, ge=0, le=MAX_LAGS, description="Number of past truths appended to its input.")
    sigmas: list[Annotated[float, Field(gt=0.0)]] | None = Field(
        default=None, min_length=1, fail_fast=True, description="A grid of length scales."
    )
    half_lives: list[HalfLifeRounds] | None = Field(
        default=None,
        min_length=1,
        fail_fast=True,
        description='A grid of half-lives; null in it never forgets. "learned" is 16, 64, 256, 1024, 4096 and null.',
    )

    _from_kind = model_validator(mode="before")(from_kind)

    @model_validator(mode="before")
    @classmethod
    def _with_a_grid(cls, value: Any) -> Any:
        """Turn `half_life: "learned"` in the config into a grid."""
        config = value.get("config") if isinstance(value, dict) else None
        if not isinstance(config, dict) or not has_learned_half_life(config) or value.get("half_lives") is not None:
            return value
        rest = {name: part for name, part in config.items() if name != "half_life"}
        return value | {"config": rest, "half_lives": LEARNED}

    @field_validator(
        "half_lives", mode="before", json_schema_input_type=list[HalfLifeRounds] | Literal["learned"] | None
    )
    @classmethod
    def _as_a_grid(cls, value: Any) -> Any:
        if isinstance(value, str) and value != LEARNED:
            raise ValueError(f'is {value!r}; give "learned", or a list of half-lives')
        return list(HALF_LIVES) if value == LEARNED else value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return or_a_kind(handler(schema), handler)

    @model_validator(mode="after")
    def _is_a_learner(self) -> Self:
        if self.kind == "pool":
            raise ValueError("a pool cannot be an expert of a pool")
        if self.sigmas is not None and "kernel" in self.config:
            raise ValueError("give either sigmas, of Gaussian kernels, or a kernel in the config")
        if self.half_lives is not None and "half_life" in self.config:
            raise ValueError("give either half_lives, or a half_life in the config")
        try:
            fields = get_learner(self.kind).config_type.model_fields
        except ConfigError as error:
            raise WrongInside(error) from error
        if self.sigmas is not None and "kernel" not in fields:
            raise ValueError(f"{self.kind} has no kernel; leave sigmas out")
        if self.half_lives is not None and "half_life" not in fields:
            raise ValueError(f"{self.kind} has no half-life; leave it out")
        for i, expert in enumerate(self.expand()):
            try:
                _, _, config = parse_spec({"kind": expert.kind, "config": expert.config, "lags": expert.lags})
            except ConfigError as error:
                raise WrongInside(self._in_the_grid(error, i)) from error
            for path, word in config.waiting():
                raise ValueError(f'an expert sees no data before the first round: give {path[-1]} itself, not "{word}"')
        return self

    def _in_the_grid(self, error: ConfigError, i: int) -> ConfigError:
        """Return the error of the i-th expert of the grid with what is wrong at its place in this spec."""
        at_sigma, at_half_life = divmod(i, len(self.half_lives or [None]))
        errors: list[tuple[tuple[str | int, ...], str]] = []
        for path, message in error.errors:
            if self.sigmas is not None and path[:2] == ("config", "kernel"):
                errors.append((("sigmas", at_sigma), message))
            elif self.half_lives is not None and path[:2] == ("config", "half_life"):
                errors.append((("half_lives", at_half_life), message))
            else:
                errors.append((path, message))
        return ConfigError(str(error), errors)

    def name(self, i: int) -> str:
        """Return a name for the i-th expert of a pool; `one-vs-rest` is described by the config of its member."""
        member = self.config.get("member")
        config = member.get("config", {}) if isinstance(member, dict) else self.config
        sigma = config.get("kernel", {}).get("sigma")
        scale = f"_sigma_{sigma:g}" if isinstance(sigma, float | int) else ""
        half_life = config.get("half_life")
        memory = "" if half_life is None else f"_half_life_{half_life}"
        return f"{i}_{self.kind}{scale}{memory}" + (f"_lags_{self.lags}" if self.lags else "")

    @property
    def dim(self) -> int | None:
        """The only number of inputs that it accepts, not counting its lags; None if any."""
        _, learner, config = parse_spec({"kind": self.kind, "config": self.config})
        dim = taken_dim(learner, config)
        return None if dim is None else dim - self.lags

    def of_classes(self, K: int) -> ExpertSpec:
        """Return the same spec for K classes, if its config leaves their number out."""
        if "classes" in self.config or "classes" not in get_learner(self.kind).config_type.model_fields:
            return self
        return self.model_copy(update={"config": self.config | {"classes": K}})

    def expand(self) -> list[ExpertSpec]:
        """Return one spec per point of the grid."""
        if self.sigmas is None and self.half_lives is None:
            return [self]
        kernels = [{"kernel": {"kind": "gaussian", "sigma": sigma}} for sigma in self.sigmas or ()]
        memories = [{"half_life": half_life} for half_life in self.half_lives or ()]
        # Not validated here, since `_is_a_learner` checks the learner of each.
        return [
            ExpertSpec.model_construct(kind=self.kind, config=self.config | kernel | memory, lags=self.lags)
            for kernel in kernels or [{}]
            for memory in memories or [{}]
        ]


def count_of(item: object) -> int:
    """Count the experts that an unvalidated item of a config stands for, by the lengths of its grids."""
    if isinstance(item, ExpertSpec):
        item = {"sigmas": item.sigmas, "half_lives": item.half_lives}
    if not isinstance(item, dict):
        return 1
    if isinstance(config := item.get("config"), dict) and has_learned_half_life(config):
        item = {"half_lives": LEARNED} | item
    grids = (HALF_LIVES if item.get(name) == LEARNED else item.get(name) for name in ("sigmas", "half_lives"))
    sizes = (len(grid) for grid in grids if isinstance(grid, list | tuple))
    return math.prod(size or 1 for size in sizes)


def trivial_experts(truth: Truth) -> list[ExpertSpec]:
    if truth == "classes":
        return [ExpertSpec(kind="frequencies")]
    return [ExpertSpec(kind="majority" if truth == "labels" else "mean"), ExpertSpec(kind="last-label")]


def default_experts(truth: Truth, clip: float) -> list[ExpertSpec]:
    """Return kernel and linear, first- and second-order experts, with and without forgetting and lags (classes: no lags)."""
    if truth == "classes":
        return _default_experts_of_classes()
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


def _default_experts_of_classes() -> list[ExpertSpec]:
    def on_a_dictionary(sigma: float, half_life: int | None = None) -> ExpertSpec:
        kernel = {"kind": "gaussian", "sigma": sigma}
        member = {"kind": "nystrom-aioli", "config": {"kernel": kernel, "budget": 100, "half_life": half_life}}
        return ExpertSpec(kind="one-vs-rest", config={"member": member})

    linear = ExpertSpec(kind="softmax-aioli", half_lives=[None, 500])
    return [linear, *map(on_a_dictionary, (0.5, 1.0, 2.0)), on_a_dictionary(1.0, 500)]
