-- lock_tallies_v1: lock the tallies that acks of these positions will write, by queue and group.
-- For callers that ack in more than one statement: two backends may share a slot, and would otherwise lock the same
-- tallies in different orders. Lock tallies before dead letters.
CREATE OR REPLACE FUNCTION lock_tallies_v1(p_partition_ids bigint[], p_group_ids bigint[]) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO tallies AS y (queue_id, group_id, slot, messages)
    SELECT DISTINCT t.queue_id, p.group_id, tally_slot_v1(), 0
    FROM unnest(p_partition_ids, p_group_ids) AS k (partition_id, group_id)
    JOIN positions p ON p.partition_id = k.partition_id AND p.group_id = k.group_id
    JOIN partitions t ON t.id = p.partition_id
    ORDER BY t.queue_id, p.group_id
    ON CONFLICT (queue_id, group_id, slot) DO UPDATE SET messages = y.messages
$$;
