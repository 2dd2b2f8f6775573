-- message_traces_v1: a page of a message's traces, the first one first.
-- Locks: none.
-- Cost: follows the page and p_offset.
CREATE OR REPLACE FUNCTION message_traces_v1(p_partition_id bigint, p_transaction_id text, p_limit int, p_offset int)
RETURNS TABLE (id bigint, group_name text, event text, names text[], data bytea, created_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT t.id, t.group_name, t.event, t.names, t.data, t.created_at FROM traces t
    WHERE t.partition_id = p_partition_id AND t.transaction_id = p_transaction_id
    ORDER BY t.id LIMIT p_limit OFFSET p_offset
$$;
