-- group_partitions_v1: list a page of a group's positions by partition name.
-- Returns: `unfinished` counts the remaining messages; `oldest_at` is when the first of them was pushed. The lease
-- columns are NULL unless the lease is in force.
CREATE OR REPLACE FUNCTION group_partitions_v1(
    p_group_id bigint, p_limit int, p_offset int, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (partition_id bigint, partition text, cursor bigint, next_offset bigint, unfinished bigint,
                 oldest_at timestamptz, leased_at timestamptz, lease_expires_at timestamptz, total bigint)
LANGUAGE sql STABLE AS $$
    WITH page AS MATERIALIZED (
        SELECT p.*, t.name, t.next_offset, greatest(p.cursor, t.low_offset) AS head, count(*) OVER () AS total,
               p.lease_id IS NOT NULL AND p.lease_expires_at > coalesce(p_now, clock_timestamp()) AS is_leased
        FROM groups g
        JOIN partitions t ON t.queue_id = g.queue_id
        JOIN positions p ON p.partition_id = t.id AND p.group_id = g.id
        WHERE g.id = p_group_id
        ORDER BY t.name LIMIT p_limit OFFSET p_offset
    )
    SELECT p.partition_id, p.name, p.head, p.next_offset, p.next_offset - p.head,
           CASE WHEN p.head < p.next_offset THEN message_created_at_v1(p.partition_id, p.head) END,
           CASE WHEN p.is_leased THEN p.leased_at END, CASE WHEN p.is_leased THEN p.lease_expires_at END, p.total
    FROM page p ORDER BY p.name
$$;
