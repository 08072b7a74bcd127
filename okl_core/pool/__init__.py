"""Pools of experts and the aggregation of their forecasts."""
