"""Ahpatron: a Perceptron with a margin on a budget."""

from okl_core.learners.ahpatron.ahpatron import Ahpatron

__all__ = ["Ahpatron"]
