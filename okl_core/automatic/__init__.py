"""Parts of the self-tuning learner: its fitted kernel, its regressions, and the mixtures of their forecasts."""
