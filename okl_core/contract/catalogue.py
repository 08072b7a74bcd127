"""The catalogue: what there is to know of each kind of learner before one is made."""

from __future__ import annotations

from typing import Any

from okl_core.contract.learner import get_learner, learner_kinds


def catalogue() -> list[dict[str, Any]]:
    """One entry per kind: summary, target, references, and the JSON schema and defaults of its config."""
    entries = []
    for kind in learner_kinds():
        learner = get_learner(kind)
        config_type = learner.config_type
        entries.append(
            {
                "kind": kind,
                "summary": (type(learner).__doc__ or "").strip().split("\n")[0],
                "target": learner.target(config_type()),
                "dims": learner.dims,
                "references": list(learner.references),
                "defaults": config_type().model_dump(mode="json"),
                "config_schema": config_type.model_json_schema(),
            }
        )
    return entries
