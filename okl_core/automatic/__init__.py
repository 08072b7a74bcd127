"""The parts of a learner that finds its own parameters: what it fits first, remembers, and how it puts forecasts together."""
