"""The learner contract: its base class, learners in use, their state and randomness, and the contract's checks."""
