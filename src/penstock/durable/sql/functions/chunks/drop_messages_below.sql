-- drop_messages_below_v1: drop the messages of partitions below p_offsets, which are above their low_offset.
-- Moves low_offset and the positions below it; the rows are dropped with their chunk.
-- Runs under the caller's locks on the queues (shared), the partitions and their positions.
-- Returns: per queue and group the messages dropped before they were finished; group 0 if the queue has no group.
CREATE OR REPLACE FUNCTION drop_messages_below_v1(p_partition_ids bigint[], p_offsets bigint[], p_now timestamptz)
RETURNS TABLE (queue_id bigint, group_id bigint, messages bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT p.queue_id, p.group_id, p.messages FROM advance_past_v1(p_partition_ids, p_offsets, p_now) p;
    RETURN QUERY
    WITH bounds AS MATERIALIZED (
        SELECT t.id, t.queue_id, t.low_offset, k.kept_from
        FROM unnest(p_partition_ids, p_offsets) AS k (id, kept_from) JOIN partitions t ON t.id = k.id
    ), partition_rows AS (
        UPDATE partitions t SET low_offset = k.kept_from FROM bounds k WHERE t.id = k.id
    ), tally_rows AS (
        INSERT INTO tallies AS y (queue_id, group_id, slot, messages)
        SELECT k.queue_id, -1, tally_slot_v1(), sum(k.kept_from - k.low_offset) FROM bounds k
        GROUP BY k.queue_id ORDER BY k.queue_id
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE SET messages = y.messages + excluded.messages
    ), deleted_marks AS (
        DELETE FROM deleted_messages d USING bounds k WHERE d.partition_id = k.id AND d.message_offset < k.kept_from
    ), deleted_lineages AS (
        DELETE FROM lineages l USING bounds k WHERE l.partition_id = k.id AND l.message_offset < k.kept_from
    )
    SELECT k.queue_id, 0::bigint, sum(k.kept_from - k.low_offset)::bigint FROM bounds k
    WHERE NOT EXISTS (SELECT 1 FROM groups g WHERE g.queue_id = k.queue_id) GROUP BY k.queue_id;
END $$;
