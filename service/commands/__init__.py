"""The longer commands of the command line, one module each."""
