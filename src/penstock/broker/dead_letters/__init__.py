"""Dead letters of durable queues and run queues: requeue, delete, and jobs over many of them."""
