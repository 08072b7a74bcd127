"""Encoding of raw records as vectors: nested objects, text, times, categories and numbers, with nulls and new keys."""
