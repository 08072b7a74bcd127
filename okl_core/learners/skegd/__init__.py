"""SkeGD: gradient descent on an embedding by sketches."""

from okl_core.learners.skegd.skegd import Skegd

__all__ = ["Skegd"]
