"""The learners, one file or one package each."""
