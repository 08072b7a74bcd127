"""Half-lives of a pool's expert: one learner each, on one dictionary, and the best of them is followed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from okl_core import create
from okl_core.errors import ConfigError
from okl_core.pool.expert_specs import HALF_LIVES, ExpertSpec
from okl_core.types import F64

KINDS = ("ons", "aioli", "fourier-aioli", "nystrom-ridge", "nystrom-aar", "nystrom-aioli", "pros-n-kons")
"""All that have a half-life."""


def turning(n: int) -> tuple[F64, F64]:
    """Labels of a linear function that turns once in 377 rounds."""
    X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(n, 2))
    angle = np.arange(n) / 60.0
    return X, np.where(np.cos(angle) * X[:, 0] + np.sin(angle) * X[:, 1] > 0.0, 1.0, -1.0)


def pool_of(expert: dict[str, Any], **config: Any) -> dict[str, Any]:
    return {"kind": "pool", "config": {"experts": [expert]} | config}


def test_two_grids_are_one_expert_a_pair() -> None:
    spec = ExpertSpec(kind="pros-n-kons", sigmas=[0.5, 1.0], half_lives=[16, None])
    pairs = [(expert.config["kernel"]["sigma"], expert.config["half_life"]) for expert in spec.expand()]
    assert pairs == [(0.5, 16), (0.5, None), (1.0, 16), (1.0, None)]
    names = [expert.name(i) for i, expert in enumerate(spec.expand())]
    assert names[:2] == ["0_pros-n-kons_sigma_0.5_half_life_16", "1_pros-n-kons_sigma_0.5"]
    learned = ExpertSpec.model_validate({"kind": "ons", "half_lives": "learned"})
    assert learned.half_lives == list(HALF_LIVES)
    assert ExpertSpec.model_validate(learned.model_dump()) == learned


def test_they_share_a_dictionary_and_lose_what_each_loses_alone() -> None:
    X, y = turning(400)
    far = {"dictionary": {"kind": "ald", "threshold": 0.2}, "loss": "squared", "clip": 1.0}
    learner = create(pool_of({"kind": "pros-n-kons", "config": far, "half_lives": [16, 64, None]}), 2)
    learner.run(X, y)
    told = learner.describe()
    assert told["units"] == 3  # the grid, and the two trivial ones
    for i, half_life in enumerate((16, 64, None)):
        alone = create({"kind": "pros-n-kons", "config": far | {"half_life": half_life}}, 2)
        values = alone.run(X, y).values
        name = f"loss_{i}_pros-n-kons" + ("" if half_life is None else f"_half_life_{half_life}")
        assert told[name] == pytest.approx(np.square(values - y).sum(), rel=1e-9)
        assert told["dictionary"] == alone.describe()["dictionary"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_of_the_grid_is_followed(kind: str) -> None:
    """Within what the pool's theorem allows."""
    clip, loss = (10.0, "logistic") if "aioli" in kind else (1.0, "squared")
    learner = create(pool_of({"kind": kind, "half_lives": "learned"}, loss=loss, clip=clip, share=0.0), 2)
    total = learner.run(*turning(600)).losses.sum()
    told = learner.describe()
    assert total <= told["best_loss"] + told["bound"] + 1e-9
    losses = {name: value for name, value in told.items() if name.startswith("loss_") and kind in name}
    assert len(losses) == len(HALF_LIVES)
    assert min(losses, key=lambda name: losses[name]).endswith(("half_life_16", "half_life_64"))


@pytest.mark.parametrize(
    ("expert", "told"),
    [
        ({"kind": "kons", "half_lives": "learned"}, "kons has no half-life; leave half_lives out"),
        ({"kind": "ons", "half_lives": [3]}, "half_lives.0: .*greater than or equal to 8"),
        ({"kind": "ons", "half_lives": []}, "half_lives: .*at least 1"),
        ({"kind": "ons", "half_lives": "often"}, "half_lives: is 'often'; give \"learned\", or a list"),
        ({"kind": "ons", "half_lives": [9], "config": {"half_life": 9}}, "either half_lives"),
    ],
)
def test_bad_grids_say_what_is_wrong(expert: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        create(pool_of(expert), 2)
