"""Metrics of the workers and the sessions, as `GET /metrics` answers them."""
