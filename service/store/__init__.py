"""Where sessions are kept: the contract of a store, and the stores SQLite and Redis."""
