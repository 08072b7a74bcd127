"""A session's history over its whole life: bounded, thinned, finer near the end, and the same on every worker."""
