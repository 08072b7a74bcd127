"""The streaming prediction service: sessions over HTTP, durable in a store."""

__version__ = "0.1.0"
