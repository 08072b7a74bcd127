"""Sessions that follow another one, are compared with it, and may take its place."""
