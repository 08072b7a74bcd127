"""Metrics in which inputs are compared: Mahalanobis, and those learned from a stream."""
