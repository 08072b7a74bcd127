"""Challengers: sessions that follow another one, are compared with it, and may take its place."""
