"""`penstock bench`: a small, bounded load against a running broker, in a queue of its own."""
