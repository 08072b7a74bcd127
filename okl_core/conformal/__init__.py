"""Intervals and sets around a forecast that hold the truth as often as promised."""
