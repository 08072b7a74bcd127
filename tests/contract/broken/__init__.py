"""A learner as a stranger would write it, and one that breaks each clause of the contract."""

from tests.contract.broken import descriptions, rounds, states
from tests.contract.broken.sleepy import BROKEN, Sleepy

__all__ = ["BROKEN", "Sleepy", "descriptions", "rounds", "states"]
