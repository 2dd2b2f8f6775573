"""The message queues that are compared. Each pushes and consumes the same messages in its own best way."""
