"""Session stores: the contract of a store, and its implementations on SQLite and Redis."""
