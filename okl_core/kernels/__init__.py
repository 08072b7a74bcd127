"""Kernels, the points that they are evaluated on, and random features."""
