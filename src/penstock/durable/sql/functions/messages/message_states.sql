-- message_states_v1: report the state of a message for each group of its queue.
-- Returns: status `pending`, `processing` (under a live lease), `completed` or `dead_letter`; the failed attempts, the
-- lease's end, and the error and time of the dead letter.
CREATE OR REPLACE FUNCTION message_states_v1(p_partition_id bigint, p_offset bigint, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (group_name text, status text, attempts int, lease_expires_at timestamptz, error text,
               failed_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT g.name,
           CASE WHEN d.id IS NOT NULL THEN 'dead_letter'
                WHEN p.cursor > p_offset OR p.finished @> p_offset THEN 'completed'
                WHEN l.is_leased THEN 'processing' ELSE 'pending' END,
           coalesce(d.attempts, (p.attempts ->> p_offset::text)::int, 0),
           CASE WHEN l.is_leased AND p.cursor <= p_offset AND NOT p.finished @> p_offset THEN p.lease_expires_at END,
           d.error, d.failed_at
    FROM positions p
    JOIN groups g ON g.id = p.group_id
    LEFT JOIN dead_letters d ON d.partition_id = p.partition_id AND d.group_id = p.group_id
                            AND d.message_offset = p_offset
    CROSS JOIN LATERAL (
        SELECT p.lease_id IS NOT NULL AND p.lease_expires_at > coalesce(p_now, clock_timestamp())
               AND p_offset >= p.lease_from AND p_offset < p.lease_to AND NOT p.returned @> p_offset AS is_leased
    ) l
    WHERE p.partition_id = p_partition_id ORDER BY g.name
$$;
