"""Experts side by side, and how their forecasts are weighed."""
