"""The embedded servers of a single-machine platform, and the supervisor that keeps them running.

An operator can replace every embedded server with an external one. The packages above do not know which of
the two they talk to.
"""
