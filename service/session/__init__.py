"""Sessions as pure values: what a session is, what it makes of inputs and truths, and the bytes that keep it."""
