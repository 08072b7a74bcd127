"""The demonstrations of `okl demo`: real data through a real service process, and the usual way beside it."""
