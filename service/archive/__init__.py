"""Sessions that move: as one download, to a kept state, under another name, to another store."""
