"""Dead letters of durable queues and run queues: find, requeue and delete them, one by one or with jobs."""
