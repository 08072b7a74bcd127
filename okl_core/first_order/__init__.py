"""Gradient steps, the first phase of learners that embed later, and what blocks of such rounds share."""
