"""What is counted of a worker and of the sessions, and how `GET /metrics` tells it."""
