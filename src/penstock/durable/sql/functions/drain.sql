-- drain_v1: carry out waiting operations of the most urgent lanes that no other drain holds: up to p_lanes lanes,
-- and of each up to p_operations in their order. All of it takes effect, or none.
-- Returns what to tell the metrics and whoever waits; see drain_pushes_v1 and drain_acks_v1.
-- Raises: whatever an operation that cannot be carried out raises; drain_carefully_v1 then finds out which.
-- Locks: lanes (none that is taken); then those of the operations.
CREATE OR REPLACE FUNCTION drain_v1(p_kind text, p_lanes int, p_operations int, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (operations int, organization text, project text, environment text, queue_id bigint, queue text,
               partition_id bigint, group_name text, outcome text, messages int, run_ms bigint[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_lanes bigint[] := next_lanes_v1(p_kind, p_lanes, p_now);
BEGIN
    IF cardinality(v_lanes) = 0 THEN
        RETURN;
    END IF;
    IF p_kind = 'push' THEN
        RETURN QUERY SELECT * FROM drain_pushes_v1(v_lanes, p_operations, p_now);
    ELSE
        RETURN QUERY SELECT * FROM drain_acks_v1(v_lanes, p_operations, p_now);
    END IF;
END $$;

-- next_lanes_v1: lock and return the lanes that come next.
CREATE OR REPLACE FUNCTION next_lanes_v1(p_kind text, p_lanes int, p_now timestamptz) RETURNS bigint[]
LANGUAGE sql AS $$
    SELECT coalesce(array_agg(n.partition_id ORDER BY n.partition_id), '{}') FROM (
        SELECT l.partition_id FROM lanes l
        WHERE l.kind = p_kind AND l.not_before <= coalesce(p_now, clock_timestamp())
        ORDER BY l.due LIMIT p_lanes FOR UPDATE SKIP LOCKED) n
$$;

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

-- leave_lanes_v1: note that operations have left their lanes; an empty lane goes, the others wait for their turn.
-- Runs under the partitions' row locks.
CREATE OR REPLACE FUNCTION leave_lanes_v1(p_kind text, p_lanes bigint[], p_left int[]) RETURNS void
LANGUAGE sql AS $$
    UPDATE partitions p SET spilled = CASE WHEN p_kind = 'push' THEN p.spilled - l.operations ELSE p.spilled END,
           spilled_acks = CASE WHEN p_kind = 'ack' THEN p.spilled_acks - l.operations ELSE p.spilled_acks END
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
    SELECT p_kind, slot_v1(), sum(n) FROM unnest(p_left) n HAVING sum(n) > 0
    ON CONFLICT (kind, slot) DO UPDATE SET finished = y.finished + excluded.finished;
$$;
