"""What became of a session over its whole life: bounded, thinned, finer near the end, and the same on every worker."""
