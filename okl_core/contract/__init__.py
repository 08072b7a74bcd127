"""What every learner keeps to: the contract, a learner in use, its state, its coins, and the checks of all that."""
