-- next_operations_v1: read the first waiting operations of lanes, up to p_operations of each, in their order.
-- The work of one transaction is bounded: it takes no further operation past 10,000 items or 8 MB, but always one.
CREATE OR REPLACE FUNCTION next_operations_v1(p_kind text, p_lanes bigint[], p_operations int)
RETURNS SETOF operations
LANGUAGE sql STABLE AS $$
    SELECT (k.operation).* FROM (
        SELECT n.operation, sum(n.items) OVER round_robin - n.items AS items,
               sum(n.bytes) OVER round_robin - n.bytes AS bytes
        FROM (
            SELECT o AS operation, o.items, o.bytes, o.partition_id,
                   row_number() OVER (PARTITION BY o.partition_id ORDER BY o.sequence) AS nth
            FROM unnest(p_lanes) l
            CROSS JOIN LATERAL (
                SELECT * FROM operations w WHERE w.partition_id = l AND w.kind = p_kind AND w.status = 'pending'
                ORDER BY w.sequence LIMIT p_operations) o
        ) n
        WINDOW round_robin AS (ORDER BY n.nth, n.partition_id)
    ) k
    WHERE k.items < 10000 AND k.bytes < 8388608
$$;
