-- expire_idle_positions_v1: skip expired messages in groups that no consumer pops, up to p_limit positions per call.
-- Without it, depth and size of such groups would include messages past their time to live. Takes the positions that
-- have waited longest first. pop_v1 skips the expired messages it meets itself.
-- Returns: the messages skipped per queue and group; `scanned` is the number of positions read for the row's group.
-- Locks: position rows SKIP LOCKED; partition rows SKIP LOCKED, only to record that a position ran empty.
CREATE OR REPLACE FUNCTION expire_idle_positions_v1(p_limit int, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (queue_id bigint, group_id bigint, messages bigint, scanned int)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now       timestamptz := coalesce(p_now, clock_timestamp());
    v_remaining int := p_limit;
    v_group     record;
    v_claimed   bigint[];
    v_expired   bigint;
BEGIN
    FOR v_group IN
        SELECT g.id, g.queue_id, q.delay_ms * interval '1 millisecond' AS delay,
               v_now - least(nullif(q.ttl_ms, 0), nullif(q.max_wait_ms, 0)) * interval '1 millisecond' AS cutoff
        FROM queues q JOIN groups g ON g.queue_id = q.id
        WHERE q.ttl_ms > 0 OR q.max_wait_ms > 0
    LOOP
        -- A waiting position is ready once its head is past the delay; after a failure or a lease it is ready later.
        v_claimed := array(
            SELECT p.partition_id FROM positions p
            WHERE p.group_id = v_group.id AND p.ready_at <= least(v_group.cutoff + v_group.delay, v_now)
            ORDER BY p.ready_at LIMIT v_remaining FOR UPDATE SKIP LOCKED);
        CONTINUE WHEN v_claimed = '{}';
        v_remaining := v_remaining - cardinality(v_claimed);
        SELECT sum(e.expired_to - e.expired_from) INTO v_expired
        FROM expire_positions_v1(v_group.id, v_claimed, v_group.cutoff, v_now) e;
        RETURN QUERY SELECT v_group.queue_id, v_group.id, coalesce(v_expired, 0), cardinality(v_claimed);

        UPDATE positions p SET ready_at = coalesce(h.created_at + v_group.delay, p.ready_at)
        FROM (SELECT c.id, message_created_at_v1(c.id, s.cursor) AS created_at
              FROM unnest(v_claimed) AS c (id)
              JOIN positions s ON s.partition_id = c.id AND s.group_id = v_group.id) h
        WHERE p.group_id = v_group.id AND p.partition_id = h.id AND p.lease_id IS NULL;
        -- As in pop_v1: a locked partition row means that a push is running.
        UPDATE positions p SET ready_at = NULL, lease_id = NULL
        FROM (SELECT t.id, t.next_offset FROM partitions t
              WHERE t.id = ANY (v_claimed) FOR NO KEY UPDATE SKIP LOCKED) t
        WHERE p.group_id = v_group.id AND p.partition_id = t.id AND p.cursor >= t.next_offset;
        EXIT WHEN v_remaining <= 0;
    END LOOP;
END $$;
