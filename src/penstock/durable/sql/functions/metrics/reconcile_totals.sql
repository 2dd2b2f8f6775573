-- reconcile_totals_v1: compare the totals and positions of the next p_limit queues with the log and correct them.
-- Continues the running reconciliation, or starts a new one.
-- A wrong total is corrected by its difference. The difference stays right while messages are added, because a total
-- and the rows it counts change in one transaction. Totals of deleted groups are removed. A stuck position, which no
-- pop would ever find, is made ready. Findings that no number can correct are only reported: a cursor outside its
-- partition, a partition whose last segment is not at its end, a group without a position.
-- Locks: tallies by queue and group; positions that are stuck.
-- Cost: follows queues, partitions, groups and positions, never messages.
CREATE OR REPLACE FUNCTION reconcile_totals_v1(p_limit int)
RETURNS TABLE (ended boolean, queues bigint, drift bigint, orphans bigint, findings jsonb)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_id           bigint;
    v_ids          bigint[];
    v_findings     jsonb := '[]';
    v_new_findings jsonb;
    v_drift        bigint;
    v_orphans      bigint;
    v_partitions   bigint;
    v_positions    bigint;
BEGIN
    SELECT r.id INTO v_id FROM reconciliations r WHERE r.ended_at IS NULL ORDER BY r.id DESC LIMIT 1;
    IF v_id IS NULL THEN
        INSERT INTO reconciliations DEFAULT VALUES RETURNING id INTO v_id;
    END IF;
    v_ids := array(SELECT q.id FROM queues q, reconciliations r
                   WHERE r.id = v_id AND q.id > r.last_queue_id ORDER BY q.id LIMIT p_limit);
    IF v_ids = '{}' THEN
        DELETE FROM reconciliations r WHERE r.began_at < clock_timestamp() - interval '31 days' AND r.id <> v_id;
        RETURN QUERY UPDATE reconciliations r SET ended_at = clock_timestamp() WHERE r.id = v_id
        RETURNING true, r.queues, r.drift, r.orphans, r.findings;
        RETURN;
    END IF;

    DELETE FROM tallies y WHERE y.queue_id = ANY (v_ids) AND y.group_id > 0
        AND NOT EXISTS (SELECT 1 FROM groups g WHERE g.id = y.group_id);
    GET DIAGNOSTICS v_orphans = ROW_COUNT;

    -- One statement, so one snapshot: a concurrent push or ack is in both sides or in neither.
    WITH expected AS (
        SELECT t.queue_id, 0::bigint AS group_id, 'pushed' AS total_name, sum(t.next_offset)::bigint AS messages
        FROM partitions t WHERE t.queue_id = ANY (v_ids) GROUP BY t.queue_id
        UNION ALL
        SELECT t.queue_id, -1, 'let go', sum(t.low_offset)::bigint
        FROM partitions t WHERE t.queue_id = ANY (v_ids) GROUP BY t.queue_id
        UNION ALL
        SELECT g.queue_id, g.id, 'finished by ' || g.name, coalesce(sum(p.cursor), 0)::bigint
        FROM groups g LEFT JOIN positions p ON p.group_id = g.id
        WHERE g.queue_id = ANY (v_ids) GROUP BY g.queue_id, g.id, g.name
    ), compared AS (
        SELECT c.*, c.messages - coalesce((
                   SELECT sum(y.messages) FROM tallies y
                   WHERE (y.queue_id, y.group_id) = (c.queue_id, c.group_id)), 0)::bigint AS difference
        FROM expected c
    ), wrong AS MATERIALIZED (
        SELECT c.* FROM compared c WHERE c.difference <> 0 ORDER BY c.queue_id, c.group_id
    ), corrected AS (
        INSERT INTO tallies AS y (queue_id, group_id, slot, messages)
        SELECT w.queue_id, w.group_id, tally_slot_v1(), w.difference FROM wrong w
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE SET messages = y.messages + excluded.messages
    )
    SELECT coalesce(sum(abs(w.difference)), 0),
           coalesce(jsonb_agg(jsonb_build_object('queue', q.name, 'what', 'total ' || w.total_name,
                                                 'messages', w.difference, 'corrected', true)), '[]')
    INTO v_drift, v_new_findings FROM wrong w JOIN queues q ON q.id = w.queue_id;
    v_findings := v_findings || v_new_findings;

    SELECT coalesce(jsonb_agg(jsonb_build_object('queue', q.name, 'partition', t.name, 'what', s.finding,
                                                 'group', s.group_name, 'corrected', false)), '[]')
    INTO v_new_findings
    FROM (
        SELECT t.id AS partition_id, 'a cursor is outside its partition' AS finding, g.name AS group_name
        FROM partitions t JOIN positions p ON p.partition_id = t.id JOIN groups g ON g.id = p.group_id
        WHERE t.queue_id = ANY (v_ids) AND (p.cursor > t.next_offset OR p.cursor < t.low_offset)
        UNION ALL
        SELECT t.id, 'a group has no position', g.name
        FROM partitions t JOIN groups g ON g.queue_id = t.queue_id
        LEFT JOIN positions p ON p.partition_id = t.id AND p.group_id = g.id
        WHERE t.queue_id = ANY (v_ids) AND p.partition_id IS NULL
        UNION ALL
        SELECT t.id, 'its last segment is not where it ends', NULL
        FROM partitions t
        LEFT JOIN LATERAL (SELECT l.last_offset FROM log l WHERE l.partition_id = t.id
                           ORDER BY l.first_offset DESC LIMIT 1) s ON true
        WHERE t.queue_id = ANY (v_ids) AND t.low_offset < t.next_offset
          AND s.last_offset IS DISTINCT FROM t.next_offset - 1
    ) s JOIN partitions t ON t.id = s.partition_id JOIN queues q ON q.id = t.queue_id;
    v_findings := v_findings || v_new_findings;

    WITH made_ready AS (
        UPDATE positions p SET ready_at = clock_timestamp()
        FROM partitions t
        WHERE t.id = p.partition_id AND t.queue_id = ANY (v_ids) AND p.ready_at IS NULL AND p.cursor < t.next_offset
        RETURNING t.queue_id, t.name
    )
    SELECT coalesce(jsonb_agg(jsonb_build_object('queue', q.name, 'partition', w.name, 'what',
                                                 'a position was stuck', 'corrected', true)), '[]')
    INTO v_new_findings FROM made_ready w JOIN queues q ON q.id = w.queue_id;
    v_findings := v_findings || v_new_findings;

    SELECT count(DISTINCT t.id), count(p.partition_id) INTO v_partitions, v_positions
    FROM partitions t LEFT JOIN positions p ON p.partition_id = t.id WHERE t.queue_id = ANY (v_ids);
    RETURN QUERY UPDATE reconciliations r SET
        last_queue_id = v_ids[cardinality(v_ids)], queues = r.queues + cardinality(v_ids),
        partitions = r.partitions + v_partitions, positions = r.positions + v_positions,
        drift = r.drift + v_drift, orphans = r.orphans + v_orphans,
        -- A hundred findings are enough for a diagnosis; the counts above include all of them.
        findings = CASE WHEN jsonb_array_length(r.findings) < 100 THEN r.findings || v_findings ELSE r.findings END
    WHERE r.id = v_id
    RETURNING false, cardinality(v_ids)::bigint, v_drift, v_orphans, v_findings;
END $$;
