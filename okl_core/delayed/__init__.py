"""Learners for late truths, with regret bounds for the forecasts as issued."""

from okl_core.delayed.create_delayed import create_delayed

__all__ = ["create_delayed"]
