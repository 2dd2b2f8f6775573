-- leave_lanes_v1: note that operations have left their lanes; an empty lane goes, the others wait for their turn.
-- Runs under the partitions' row locks.
CREATE OR REPLACE FUNCTION leave_lanes_v1(p_kind text, p_lanes bigint[], p_left int[]) RETURNS void
LANGUAGE sql AS $$
    UPDATE partitions p SET deferred_pushes = CASE WHEN p_kind = 'push' THEN p.deferred_pushes - l.operations ELSE p.deferred_pushes END,
           deferred_acks = CASE WHEN p_kind = 'ack' THEN p.deferred_acks - l.operations ELSE p.deferred_acks END
    FROM unnest(p_lanes, p_left) AS l (partition_id, operations) WHERE p.id = l.partition_id;

    WITH heads AS (
        SELECT l AS partition_id, (
            SELECT o.accepted_at + o.priority * interval '1 second' FROM operations o
            WHERE o.partition_id = l AND o.kind = p_kind AND o.status = 'pending' ORDER BY o.place LIMIT 1) AS due
        FROM unnest(p_lanes) l
    ), gone AS (
        DELETE FROM lanes x USING heads h WHERE x.partition_id = h.partition_id AND x.kind = p_kind AND h.due IS NULL
    )
    UPDATE lanes x SET due = h.due, not_before = CASE WHEN x.not_before = 'infinity' THEN x.not_before ELSE '-infinity' END
    FROM heads h WHERE x.partition_id = h.partition_id AND x.kind = p_kind AND h.due IS NOT NULL;

    INSERT INTO operation_tallies AS y (kind, slot, finished)
    SELECT p_kind, tally_slot_v1(), sum(n) FROM unnest(p_left) n HAVING sum(n) > 0
    ON CONFLICT (kind, slot) DO UPDATE SET finished = y.finished + excluded.finished;
$$;
