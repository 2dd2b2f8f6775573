-- message_created_at_v1: read when the message at an offset was pushed.
-- Returns: NULL if there is no such message.
CREATE OR REPLACE FUNCTION message_created_at_v1(p_partition_id bigint, p_offset bigint) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN l.last_offset >= p_offset THEN l.created_at END FROM log l
    WHERE l.partition_id = p_partition_id AND l.first_offset <= p_offset
    ORDER BY l.first_offset DESC LIMIT 1
$$;
