"""Gradient steps, and the buffer of learners that embed later."""
