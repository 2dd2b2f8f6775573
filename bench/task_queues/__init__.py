"""The task queues that the benchmark of run queues compares."""
