"""API keys: permissions and records, the workers' copy of all keys, rate limits, and the audit log."""
