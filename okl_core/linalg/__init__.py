"""Linear algebra for streams: growing arrays and factors, rank-one updates, nearest neighbours."""
