"""Moving sessions: downloads, checkpoints, renaming, files, and transfer to another store."""
