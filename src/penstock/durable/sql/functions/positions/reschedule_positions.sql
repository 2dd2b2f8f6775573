-- reschedule_positions_v1: apply a queue's new delay and window to its waiting positions.
-- p_old_delay_ms and p_old_window_ms are the options before the change. A position becomes ready when its head is older
-- than the delay; pop_v1 checks the window. A position that is ready later than both the old delay and the old window
-- require waits for a retry, and is not moved forward.
-- Locks: the waiting positions of the queue by partition and group.
CREATE OR REPLACE FUNCTION reschedule_positions_v1(p_queue_id bigint, p_old_delay_ms bigint, p_old_window_ms bigint)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM positions p JOIN partitions t ON t.id = p.partition_id
    WHERE t.queue_id = p_queue_id AND p.ready_at IS NOT NULL AND p.lease_id IS NULL
    ORDER BY p.partition_id, p.group_id FOR UPDATE OF p;

    WITH heads AS MATERIALIZED (
        SELECT p.partition_id, p.group_id, t.pushed_at, q.delay_ms,
               message_created_at_v1(t.id, greatest(p.cursor, t.low_offset)) AS created_at
        FROM queues q
        JOIN partitions t ON t.queue_id = q.id
        JOIN positions p ON p.partition_id = t.id
        WHERE q.id = p_queue_id AND p.ready_at IS NOT NULL AND p.lease_id IS NULL
    )
    UPDATE positions p SET ready_at = greatest(
        h.created_at + h.delay_ms * interval '1 millisecond',
        CASE WHEN p.ready_at > h.created_at + p_old_delay_ms * interval '1 millisecond'
              AND p.ready_at > h.pushed_at + p_old_window_ms * interval '1 millisecond' THEN p.ready_at END)
    FROM heads h
    WHERE p.partition_id = h.partition_id AND p.group_id = h.group_id AND h.created_at IS NOT NULL;
END $$;
