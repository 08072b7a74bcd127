"""Metrics for comparing inputs: Mahalanobis metrics, given or learned from a stream."""
