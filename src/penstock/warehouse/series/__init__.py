"""Series: the points of a time window, read from the tier tables."""
