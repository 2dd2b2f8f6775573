-- release_lease_v1: release a lease whose messages no consumer received.
-- It counts no attempt; the position is ready at once. A lease that is not in force is left alone.
-- Returns: the number of positions released.
-- Locks: position rows by partition.
CREATE OR REPLACE FUNCTION release_lease_v1(p_group_id bigint, p_lease_id uuid, p_partition_ids bigint[])
RETURNS int
LANGUAGE sql AS $$
    WITH held AS (
        SELECT p.partition_id FROM positions p
        WHERE p.group_id = p_group_id AND p.partition_id = ANY (p_partition_ids) AND p.lease_id = p_lease_id
        ORDER BY p.partition_id FOR UPDATE
    ), released AS (
        UPDATE positions p SET lease_id = NULL, returned = '{}',
               ready_at = coalesce(message_created_at_v1(p.partition_id, p.cursor), clock_timestamp())
        FROM held WHERE p.group_id = p_group_id AND p.partition_id = held.partition_id
        RETURNING 1
    )
    SELECT count(*)::int FROM released
$$;
