"""Who takes part in the benchmark of run queues."""
