-- retry_ready_at_v1: compute when a message that is returned now may be popped again.
CREATE OR REPLACE FUNCTION retry_ready_at_v1(p_queue_id bigint, p_now timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT p_now + q.retry_delay_ms * interval '1 millisecond' FROM queues q WHERE q.id = p_queue_id
$$;
