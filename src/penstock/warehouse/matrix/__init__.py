"""Values of all queues of an environment at once, as matrices of queues and time steps."""
