-- expire_idle_positions_v1: pass over messages that outlived their time to live in groups nobody pops, so that depth and
-- size tell the truth; up to p_limit positions per call, longest waiting first. What a pop finds expired it
-- passes over itself.
-- Returns what was passed over per queue and group, and how many positions were looked at, in every row.
-- Locks: position rows SKIP LOCKED; partition rows SKIP LOCKED, only to note that a position ran empty.
CREATE OR REPLACE FUNCTION expire_idle_positions_v1(p_limit int, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (queue_id bigint, group_id bigint, messages bigint, looked_at int)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now     timestamptz := coalesce(p_now, clock_timestamp());
    v_left    int := p_limit;
    v_group   record;
    v_claimed bigint[];
    v_passed  bigint;
BEGIN
    FOR v_group IN
        SELECT g.id, g.queue_id, q.delay_ms * interval '1 millisecond' AS delay,
               v_now - least(nullif(q.ttl_ms, 0), nullif(q.max_wait_ms, 0)) * interval '1 millisecond' AS cutoff
        FROM queues q JOIN groups g ON g.queue_id = q.id
        WHERE q.ttl_ms > 0 OR q.max_wait_ms > 0
    LOOP
        -- A waiting position is ready when its head is past its delay; later only after a failure or a lease.
        v_claimed := array(
            SELECT p.partition_id FROM positions p
            WHERE p.group_id = v_group.id AND p.ready_at <= least(v_group.cutoff + v_group.delay, v_now)
            ORDER BY p.ready_at LIMIT v_left FOR UPDATE SKIP LOCKED);
        CONTINUE WHEN v_claimed = '{}';
        v_left := v_left - cardinality(v_claimed);
        SELECT sum(e.expired_to - e.expired_from) INTO v_passed
        FROM expire_positions_v1(v_group.id, v_claimed, v_group.cutoff, v_now) e;
        RETURN QUERY SELECT v_group.queue_id, v_group.id, coalesce(v_passed, 0), cardinality(v_claimed);

        UPDATE positions p SET ready_at = coalesce(h.created_at + v_group.delay, p.ready_at)
        FROM (SELECT c.id, message_created_at_v1(c.id, s.cursor) AS created_at
              FROM unnest(v_claimed) AS c (id)
              JOIN positions s ON s.partition_id = c.id AND s.group_id = v_group.id) h
        WHERE p.group_id = v_group.id AND p.partition_id = h.id AND p.lease_id IS NULL;
        -- As in pop_v1: a partition whose row is locked is being pushed to.
        UPDATE positions p SET ready_at = NULL, lease_id = NULL
        FROM (SELECT t.id, t.next_offset FROM partitions t
              WHERE t.id = ANY (v_claimed) FOR NO KEY UPDATE SKIP LOCKED) t
        WHERE p.group_id = v_group.id AND p.partition_id = t.id AND p.cursor >= t.next_offset;
        EXIT WHEN v_left <= 0;
    END LOOP;
END $$;
