"""Gradient steps, the first phase of learners that embed later, and shared code for blocks of such rounds."""
