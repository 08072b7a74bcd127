"""Regression by balls that pack the inputs."""
