"""Kernels, the points that they are asked about, and random features."""
