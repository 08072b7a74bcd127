"""Sessions as pure values: their state, their rounds, and the bytes in which they are stored."""
