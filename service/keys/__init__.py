"""API keys: what a key is and may do, how a worker knows all of them, how often one may ask, and who did what."""
