-- message_at_offset_v1: read the message at an offset that is kept.
-- Clients that handle one message at a time find it at the start of a segment. The function looks there first: finding
-- the last segment that starts before the offset reads half a page of the index.
CREATE OR REPLACE FUNCTION message_at_offset_v1(p_partition_id bigint, p_offset bigint)
RETURNS TABLE (message_id uuid, transaction_id text, trace_id uuid, payload bytea, created_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT l.message_ids[1], l.transaction_ids[1], l.trace_ids[1], l.payloads[1], l.created_at
    FROM log l WHERE l.partition_id = p_partition_id AND l.first_offset = p_offset
    UNION ALL
    (SELECT l.message_ids[p_offset - l.first_offset + 1], l.transaction_ids[p_offset - l.first_offset + 1],
            l.trace_ids[p_offset - l.first_offset + 1], l.payloads[p_offset - l.first_offset + 1], l.created_at
     FROM log l WHERE l.partition_id = p_partition_id AND l.first_offset < p_offset
     ORDER BY l.first_offset DESC LIMIT 1)
    LIMIT 1
$$;
