"""Regression by a packing of the inputs with balls."""
