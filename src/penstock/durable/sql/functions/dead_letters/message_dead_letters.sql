-- message_dead_letters_v1: the dead letters of one message, one per group that gave up on it, by id.
-- Locks: none.
-- Cost: one index lookup, and one per group.
CREATE OR REPLACE FUNCTION message_dead_letters_v1(p_partition_id bigint, p_transaction_id text)
RETURNS TABLE (id bigint, group_id bigint, group_name text, message_offset bigint, message_id uuid, trace_id uuid,
               payload bytea, error text, attempts int, created_at timestamptz, failed_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT d.id, d.group_id, g.name, d.message_offset, d.message_id, d.trace_id, d.payload, d.error, d.attempts,
           d.created_at, d.failed_at
    FROM dead_letters d LEFT JOIN groups g ON g.id = d.group_id
    WHERE d.partition_id = p_partition_id AND d.transaction_id = p_transaction_id ORDER BY d.id
$$;
