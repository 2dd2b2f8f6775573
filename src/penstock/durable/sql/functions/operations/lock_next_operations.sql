-- lock_next_operations_v1: read the next operations of lanes that the caller has locked, and lock their partitions.
-- If there are none, the queues were deleted: then it deletes the lanes.
-- Returns: per operation its id, partition and number of items, by partition and in the order of the lane; NULL if
-- there are none. `counts` has the number of operations of each lane, in the order of p_lanes.
-- Locks: partition rows by id.
CREATE OR REPLACE FUNCTION lock_next_operations_v1(
    p_kind text, p_lanes bigint[], p_operations int,
    OUT ids uuid[], OUT partition_ids bigint[], OUT lengths int[], OUT counts int[]
)
LANGUAGE plpgsql AS $$   -- not sql: the operations are read after the partitions are locked
BEGIN
    PERFORM 1 FROM partitions WHERE id = ANY (p_lanes) ORDER BY id FOR NO KEY UPDATE;
    SELECT array_agg(o.id ORDER BY o.partition_id, o.sequence),
           array_agg(o.partition_id ORDER BY o.partition_id, o.sequence),
           array_agg(o.items ORDER BY o.partition_id, o.sequence)
    INTO ids, partition_ids, lengths
    FROM next_operations_v1(p_kind, p_lanes, p_operations) o;
    counts := array(SELECT count(o.partition_id)::int
                    FROM unnest(p_lanes) WITH ORDINALITY AS l (partition_id, n)
                    LEFT JOIN unnest(partition_ids) AS o (partition_id) ON o.partition_id = l.partition_id
                    GROUP BY l.n ORDER BY l.n);
    IF ids IS NULL THEN
        PERFORM remove_from_lanes_v1(p_kind, p_lanes, counts);
    END IF;
END $$;
