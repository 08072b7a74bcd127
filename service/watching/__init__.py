"""Watching sessions: their past, their events, and the delivery of alarms."""
