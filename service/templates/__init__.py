"""Sessions that are made on first use, and deleted when nobody uses them any more."""
