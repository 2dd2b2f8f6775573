"""Series: from a window of time to points read from the tiers."""
