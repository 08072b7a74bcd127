"""The dashboard: pages of HTML for people, each with a twin in JSON. A page shows what its document says, and computes
nothing of a session's own."""
