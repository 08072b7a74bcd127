"""From records as they come to vectors: nested objects, texts, times, categories and numbers, with nulls and new keys."""
