"""POMDR: optimistic mirror descent with a budget."""

from okl_core.learners.pomdr.pomdr import Pomdr

__all__ = ["Pomdr"]
