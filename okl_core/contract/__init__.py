"""The learner contract: the base class, learners in use, state and randomness, and checks of the contract."""
