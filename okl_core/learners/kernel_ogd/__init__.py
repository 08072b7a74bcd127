"""Online gradient descent in the space of the kernel."""

from okl_core.learners.kernel_ogd.kernel_ogd import KernelOgd

__all__ = ["KernelOgd"]
