"""Side-by-side benchmarks: `make bench-NAME`, or `python -m bench.NAME` from the repository's root."""
