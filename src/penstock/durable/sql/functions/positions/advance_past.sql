-- advance_past_v1: move the positions of partitions that stand below p_offsets up to there, because what is below is no
-- longer kept. A position goes on over what it had finished already. A lease that holds nothing any more ends;
-- one that still holds something stays in force. Depth stays exact: what is passed counts as finished.
-- Returns what each group passed over without having finished it.
-- Runs under the caller's locks on the partitions and their positions.
CREATE OR REPLACE FUNCTION advance_past_v1(p_partition_ids bigint[], p_offsets bigint[], p_now timestamptz)
RETURNS TABLE (queue_id bigint, group_id bigint, messages bigint)
LANGUAGE sql AS $$
    WITH behind AS MATERIALIZED (
        SELECT p.*, t.queue_id, t.next_offset, q.delay_ms, o.low_offset,
               coalesce((SELECT upper(r) FROM unnest(p.done) r WHERE r @> o.low_offset), o.low_offset) AS head
        FROM unnest(p_partition_ids, p_offsets) AS o (partition_id, low_offset)
        JOIN positions p ON p.partition_id = o.partition_id AND p.cursor < o.low_offset
        JOIN partitions t ON t.id = p.partition_id
        JOIN queues q ON q.id = t.queue_id
    ), judged AS MATERIALIZED (
        SELECT b.*, b.returned * int8multirange(int8range(b.head, NULL)) AS still_returned,
               b.lease_id IS NOT NULL AND b.head < b.lease_to
               AND NOT b.done + b.returned @> int8range(b.head, b.lease_to) AS is_open
        FROM behind b
    ), moved AS (
        UPDATE positions p SET
            cursor = j.head,
            done = p.done * int8multirange(int8range(j.head, NULL)),
            returned = CASE WHEN j.is_open THEN j.still_returned ELSE '{}' END,
            attempts = CASE WHEN p.attempts = '{}' THEN p.attempts
                            ELSE prune_attempts_v1(p.attempts, p.done, j.head) END,
            lease_id = CASE WHEN j.is_open THEN p.lease_id END,
            ready_at = CASE
                WHEN j.is_open THEN p.ready_at
                WHEN j.head >= j.next_offset THEN NULL
                WHEN p.lease_id IS NOT NULL AND NOT isempty(j.still_returned) THEN retry_ready_at_v1(j.queue_id, p_now)
                ELSE coalesce(greatest(message_created_at_v1(p.partition_id, j.head) + j.delay_ms * interval '1 millisecond',
                                       CASE WHEN p.lease_id IS NULL AND p.ready_at > p_now THEN p.ready_at END),
                              p_now) END
        FROM judged j WHERE p.partition_id = j.partition_id AND p.group_id = j.group_id
    ), counted AS (
        INSERT INTO tallies AS y (queue_id, group_id, slot, messages)
        SELECT j.queue_id, j.group_id, tally_slot_v1(), sum(j.head - j.cursor) FROM judged j
        GROUP BY j.queue_id, j.group_id ORDER BY j.queue_id, j.group_id
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE SET messages = y.messages + excluded.messages
    )
    SELECT j.queue_id, j.group_id,
           sum(j.low_offset - j.cursor - coalesce((
               SELECT sum(upper(r) - lower(r)) FROM unnest(
                   j.done * int8multirange(int8range(j.cursor, j.low_offset))) r), 0))::bigint
    FROM judged j GROUP BY j.queue_id, j.group_id
$$;
