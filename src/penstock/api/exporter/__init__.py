"""Samples for `GET /metrics`: of this process, of all queues, and of all processes behind the port."""
