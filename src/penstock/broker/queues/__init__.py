"""Operations on durable queues: push, pop, ack, and the administration of queues, groups and messages."""
