-- release_lease_v1: release a lease whose messages no consumer received.
-- It counts no attempt; the position is ready at once. A lease that is not in force is left alone.
-- Returns: the number of positions released.
-- Locks: position rows by partition.
CREATE OR REPLACE FUNCTION release_lease_v1(p_group_id bigint, p_lease_id uuid, p_partition_ids bigint[])
RETURNS int
LANGUAGE sql AS $$
    WITH held AS MATERIALIZED (
        SELECT p.* FROM positions p
        WHERE p.group_id = p_group_id AND p.partition_id = ANY (p_partition_ids) AND p.lease_id = p_lease_id
        ORDER BY p.partition_id FOR UPDATE
    ), released AS (
        UPDATE positions p SET lease_id = NULL, returned = '{}', ready_at = n.ready_at
        FROM held h
        CROSS JOIN LATERAL next_position_state_v1(h.partition_id, h.cursor, h.finished, 0, statement_timestamp()) n
        WHERE p.group_id = p_group_id AND p.partition_id = h.partition_id
        RETURNING 1
    )
    SELECT count(*)::int FROM released
$$;
