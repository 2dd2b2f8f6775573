-- next_operations_v1: the first waiting operations of lanes, up to p_operations of each, in their order. What a
-- transaction carries out is bounded: past 10,000 items or 8 MB no more is taken, but always something.
CREATE OR REPLACE FUNCTION next_operations_v1(p_kind text, p_lanes bigint[], p_operations int)
RETURNS SETOF operations
LANGUAGE sql STABLE AS $$
    SELECT (k.operation).* FROM (
        SELECT n.operation, sum(n.items) OVER turns - n.items AS items, sum(n.bytes) OVER turns - n.bytes AS bytes
        FROM (
            SELECT o AS operation, o.items, o.bytes, o.partition_id,
                   row_number() OVER (PARTITION BY o.partition_id ORDER BY o.place) AS nth
            FROM unnest(p_lanes) l
            CROSS JOIN LATERAL (
                SELECT * FROM operations w WHERE w.partition_id = l AND w.kind = p_kind AND w.status = 'pending'
                ORDER BY w.place LIMIT p_operations) o
        ) n
        WINDOW turns AS (ORDER BY n.nth, n.partition_id)
    ) k
    WHERE k.items < 10000 AND k.bytes < 8388608
$$;
