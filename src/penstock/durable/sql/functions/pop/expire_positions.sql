-- expire_positions_v1: pass over the messages of positions that were pushed at or before p_cutoff.
-- Runs under the caller's lock on the positions, none of which is leased. Looks at each expired segment
-- once per group, because the cursor moves past it. Returns what was passed over, without what the group had
-- finished before.
CREATE OR REPLACE FUNCTION expire_positions_v1(
    p_group_id bigint, p_partition_ids bigint[], p_cutoff timestamptz, p_now timestamptz
) RETURNS TABLE (partition_id bigint, expired_from bigint, expired_to bigint)
LANGUAGE sql AS $$
    WITH stale AS (
        SELECT p.partition_id, p.cursor, p.done, t.low_offset, t.queue_id, coalesce((
                   SELECT l.first_offset FROM log l
                   WHERE l.partition_id = p.partition_id AND l.first_offset > p.cursor AND l.created_at > p_cutoff
                   ORDER BY l.first_offset LIMIT 1), t.next_offset) AS live
        FROM positions p JOIN partitions t ON t.id = p.partition_id
        WHERE p.group_id = p_group_id AND p.partition_id = ANY (p_partition_ids)
          AND message_created_at_v1(p.partition_id, greatest(p.cursor, t.low_offset)) <= p_cutoff
    ), passed AS (
        SELECT s.*, coalesce((SELECT upper(r) FROM unnest(s.done) r WHERE r @> s.live), s.live) AS head
        FROM stale s
    ), moved AS (
        UPDATE positions p SET cursor = s.head, lease_id = NULL,
               done = p.done * int8multirange(int8range(s.head, NULL)),
               attempts = CASE WHEN p.attempts = '{}' THEN p.attempts
                               ELSE prune_attempts_v1(p.attempts, p.done, s.head) END
        FROM passed s WHERE p.group_id = p_group_id AND p.partition_id = s.partition_id
    ), counted AS (
        INSERT INTO tallies AS y (queue_id, group_id, slot, messages)
        SELECT s.queue_id, p_group_id, tally_slot_v1(), sum(s.head - s.cursor) FROM passed s GROUP BY s.queue_id
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE SET messages = y.messages + excluded.messages
    )
    SELECT s.partition_id, lower(r), upper(r) FROM passed s
    CROSS JOIN LATERAL unnest(int8multirange(int8range(greatest(s.cursor, s.low_offset), s.live)) - s.done) r
$$;
