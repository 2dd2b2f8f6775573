"""What the console shows now: snapshots of an environment that all its readers share, and streams of them."""
