"""The demonstrations of `okl demo`: real data through a real service process, compared with the usual way."""
