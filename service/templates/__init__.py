"""Templates of sessions, which are created on first use and deleted when idle."""
