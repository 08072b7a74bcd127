"""What can be watched of sessions: their past, what happens to them, and who is told of an alarm."""
