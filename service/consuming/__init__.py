"""Rounds from a Redis stream: entries become messages to sessions, and each is answered once in another stream."""
