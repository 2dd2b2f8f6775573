-- release_leases_of_tokens_v1: release the leases that were taken with access tokens, because the tokens have ended.
-- Bytes 5 to 8 of a lease's id are the number of its token. As in release_lease_v1, no attempt is counted and the
-- position is ready at once. A lease with deferred acks stays in force until they are executed: they were accepted.
-- May be repeated.
-- Returns: the queue and the partition of each position released.
-- Locks: position rows by partition and group.
-- Cost: follows the groups of the tokens' environments (of all environments for platform administrators) and their
-- positions that are leased or delayed.
CREATE OR REPLACE FUNCTION release_leases_of_tokens_v1(p_numbers int[])
RETURNS TABLE (queue_id bigint, partition_id bigint)
LANGUAGE sql AS $$
    WITH held AS MATERIALIZED (
        SELECT p.partition_id, p.group_id, p.cursor, p.finished, q.id AS queue_id
        FROM access_tokens k
        JOIN queues q ON q.environment_id = k.environment_id OR k.is_platform_admin
        JOIN groups g ON g.queue_id = q.id
        JOIN positions p ON p.group_id = g.id
        WHERE k.number = ANY (p_numbers) AND p.ready_at > statement_timestamp()
          AND p.lease_expires_at > statement_timestamp()
          AND substr(uuid_send(p.lease_id), 5, 4) = int4send(k.number)
          AND NOT EXISTS (SELECT 1 FROM operations o
                          WHERE o.partition_id = p.partition_id AND o.kind = 'ack' AND o.status = 'pending'
                            AND p.lease_id = ANY (o.lease_ids))
        ORDER BY p.partition_id, p.group_id FOR UPDATE OF p
    ), released AS (
        UPDATE positions p SET lease_id = NULL, returned = '{}', ready_at = n.ready_at
        FROM held h
        CROSS JOIN LATERAL next_position_state_v1(h.partition_id, h.cursor, h.finished, 0, statement_timestamp()) n
        WHERE p.partition_id = h.partition_id AND p.group_id = h.group_id
    )
    SELECT h.queue_id, h.partition_id FROM held h
$$;
