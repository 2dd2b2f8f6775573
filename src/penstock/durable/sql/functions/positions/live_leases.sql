-- live_leases_v1: which of the leases hold which of the partitions.
-- Locks: none.
-- Cost: follows the groups of the partitions.
CREATE OR REPLACE FUNCTION live_leases_v1(p_partition_ids bigint[], p_lease_ids uuid[])
RETURNS TABLE (partition_id bigint, group_id bigint, lease_id uuid)
LANGUAGE sql STABLE AS $$
    SELECT p.partition_id, p.group_id, p.lease_id FROM positions p
    WHERE p.partition_id = ANY (p_partition_ids) AND p.lease_id = ANY (p_lease_ids)
$$;
