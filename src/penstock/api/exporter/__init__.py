"""Samples for `GET /metrics`: of this process, of its queues, and of all processes behind the port."""
