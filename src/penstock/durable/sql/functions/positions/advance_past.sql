-- advance_past_v1: move positions up to p_offsets, because their partitions no longer keep the messages below.
-- A position also moves over the range it had finished there. A lease that no longer holds a message ends; a lease that
-- still holds one stays in force. Skipped messages count as finished, so depth stays exact.
-- Runs under the caller's locks on the partitions and their positions.
-- Returns: per queue and group the messages skipped without having been finished.
CREATE OR REPLACE FUNCTION advance_past_v1(p_partition_ids bigint[], p_offsets bigint[], p_now timestamptz)
RETURNS TABLE (queue_id bigint, group_id bigint, messages bigint)
LANGUAGE sql AS $$
    WITH lagging AS MATERIALIZED (
        SELECT p.*, t.queue_id, t.next_offset, q.delay_ms, o.low_offset,
               coalesce((SELECT upper(r) FROM unnest(p.finished) r WHERE r @> o.low_offset), o.low_offset) AS head
        FROM unnest(p_partition_ids, p_offsets) AS o (partition_id, low_offset)
        JOIN positions p ON p.partition_id = o.partition_id AND p.cursor < o.low_offset
        JOIN partitions t ON t.id = p.partition_id
        JOIN queues q ON q.id = t.queue_id
    ), new_state AS MATERIALIZED (
        SELECT l.*, l.returned * int8multirange(int8range(l.head, NULL)) AS still_returned,
               l.lease_id IS NOT NULL AND l.head < l.lease_to
               AND NOT l.finished + l.returned @> int8range(l.head, l.lease_to) AS is_open
        FROM lagging l
    ), position_rows AS (
        UPDATE positions p SET
            cursor = n.head,
            finished = p.finished * int8multirange(int8range(n.head, NULL)),
            returned = CASE WHEN n.is_open THEN n.still_returned ELSE '{}' END,
            attempts = CASE WHEN p.attempts = '{}' THEN p.attempts
                            ELSE prune_attempts_v1(p.attempts, p.finished, n.head) END,
            lease_id = CASE WHEN n.is_open THEN p.lease_id END,
            ready_at = CASE
                WHEN n.is_open THEN p.ready_at
                WHEN n.head >= n.next_offset THEN NULL
                WHEN p.lease_id IS NOT NULL AND NOT isempty(n.still_returned)
                THEN retry_ready_at_v1(n.queue_id, p_now)
                ELSE coalesce(greatest(message_created_at_v1(p.partition_id, n.head)
                                       + n.delay_ms * interval '1 millisecond',
                                       CASE WHEN p.lease_id IS NULL AND p.ready_at > p_now THEN p.ready_at END),
                              p_now) END
        FROM new_state n WHERE p.partition_id = n.partition_id AND p.group_id = n.group_id
    ), tally_rows AS (
        INSERT INTO tallies AS y (queue_id, group_id, slot, messages)
        SELECT n.queue_id, n.group_id, tally_slot_v1(), sum(n.head - n.cursor) FROM new_state n
        GROUP BY n.queue_id, n.group_id ORDER BY n.queue_id, n.group_id
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE SET messages = y.messages + excluded.messages
    )
    SELECT n.queue_id, n.group_id,
           sum(n.low_offset - n.cursor - coalesce((
               SELECT sum(upper(r) - lower(r)) FROM unnest(
                   n.finished * int8multirange(int8range(n.cursor, n.low_offset))) r), 0))::bigint
    FROM new_state n GROUP BY n.queue_id, n.group_id
$$;
