"""Benchmarks that compare Penstock with other systems or with itself in another state.

Run one with `make bench-NAME`, or with `python -m bench.NAME` from the root of the repository.
"""
