"""The parts of the self-tuning learner `auto`: its fitted kernel, its regressions, and the mixtures of their forecasts."""
