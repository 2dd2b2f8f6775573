-- read_message_v1: the message at an offset with its payload; no row if it is not stored any more.
-- Locks: none.
-- Cost: that of segments_v1 for one offset.
CREATE OR REPLACE FUNCTION read_message_v1(p_partition_id bigint, p_offset bigint)
RETURNS TABLE (message_id uuid, trace_id uuid, payload bytea, created_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT s.message_ids[1], s.trace_ids[1], s.payloads[1], s.created_at
    FROM segments_v1(p_partition_id, p_offset, p_offset + 1) s
$$;
