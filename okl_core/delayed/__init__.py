"""Learners for truths that come late, whose bounds are of the forecasts that were issued."""

from okl_core.delayed.create_delayed import create_delayed

__all__ = ["create_delayed"]
