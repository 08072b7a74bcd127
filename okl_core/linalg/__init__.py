"""Linear algebra that streams need: growing arrays and factors, rank-one updates, nearest neighbours."""
