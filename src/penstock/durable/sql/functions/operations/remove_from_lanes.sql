-- remove_from_lanes_v1: record that operations left their lanes, and delete the lanes that are empty.
-- p_removed is the number of operations that left each lane. A lane that is not empty gets the due time of its next
-- operation. Runs under the partitions' row locks.
CREATE OR REPLACE FUNCTION remove_from_lanes_v1(p_kind text, p_lanes bigint[], p_removed int[]) RETURNS void
LANGUAGE sql AS $$
    UPDATE partitions p SET
           deferred_pushes = CASE WHEN p_kind = 'push' THEN p.deferred_pushes - l.operations ELSE p.deferred_pushes END,
           deferred_acks = CASE WHEN p_kind = 'ack' THEN p.deferred_acks - l.operations ELSE p.deferred_acks END
    FROM unnest(p_lanes, p_removed) AS l (partition_id, operations) WHERE p.id = l.partition_id;

    WITH heads AS (
        SELECT l AS partition_id, (
            SELECT o.accepted_at + o.priority * interval '1 second' FROM operations o
            WHERE o.partition_id = l AND o.kind = p_kind AND o.status = 'pending' ORDER BY o.sequence LIMIT 1) AS due_at
        FROM unnest(p_lanes) l
    ), deleted_lanes AS (
        DELETE FROM lanes x USING heads h WHERE x.partition_id = h.partition_id AND x.kind = p_kind AND h.due_at IS NULL
    )
    UPDATE lanes x SET due_at = h.due_at,
           not_before = CASE WHEN x.not_before = 'infinity' THEN x.not_before ELSE '-infinity' END
    FROM heads h WHERE x.partition_id = h.partition_id AND x.kind = p_kind AND h.due_at IS NOT NULL;

    INSERT INTO operation_tallies AS y (kind, slot, finished)
    SELECT p_kind, tally_slot_v1(), sum(n) FROM unnest(p_removed) n HAVING sum(n) > 0
    ON CONFLICT (kind, slot) DO UPDATE SET finished = y.finished + excluded.finished;
$$;
