-- queue_size_v1: count the messages a queue holds.
-- Returns: the messages its slowest group has not finished; in a queue without a group, all messages it keeps.
-- Volatile, so that its snapshot is not older than the last rewrite_table_v1 of a table it reads.
CREATE OR REPLACE FUNCTION queue_size_v1(p_queue_id bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    WITH totals AS (
        SELECT t.group_id, sum(t.messages)::bigint AS messages
        FROM tallies t WHERE t.queue_id = p_queue_id GROUP BY t.group_id
    )
    SELECT coalesce(max(t.messages) FILTER (WHERE t.group_id = 0), 0)
         - coalesce(min(t.messages) FILTER (WHERE t.group_id > 0),
                    max(t.messages) FILTER (WHERE t.group_id = -1), 0)
    FROM totals t
$$;
