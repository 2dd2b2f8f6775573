-- apply_retention_v1: drop messages that queues no longer keep, in up to p_limit partitions with an id above p_after.
-- drop_messages_below_v1 moves a partition's low_offset, never back, and the positions below it.
-- It leaves a partition alone until its oldest message is past its time by a fiftieth of that time, at most five
-- minutes. So it does not change a busy partition in every round.
-- Returns: in every row the last partition read (no row if there is none above p_after), and per queue and group the
-- messages dropped before they were finished; group 0 if the queue has no group.
-- Locks: partitions, then positions, each in the order of their ids, and only where messages are dropped. The queues
-- (shared), so that a group created meanwhile does not start below low_offset.
CREATE OR REPLACE FUNCTION apply_retention_v1(p_after bigint, p_limit int, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (last_partition_id bigint, queue_id bigint, group_id bigint, messages bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now              timestamptz := coalesce(p_now, clock_timestamp());
    v_last             bigint;
    v_partition_ids    bigint[];
    v_offsets          bigint[];
    v_finished_offsets bigint[];
BEGIN
    WITH candidates AS MATERIALIZED (
        SELECT t.id, t.low_offset, least(
                   CASE WHEN q.retention_enabled THEN nullif(q.retention_ms, 0) END,
                   CASE WHEN q.retention_enabled THEN nullif(q.completed_retention_ms, 0) END,
                   CASE WHEN NOT q.has_group THEN nullif(q.ttl_ms, 0) END,
                   CASE WHEN NOT q.has_group THEN nullif(q.max_wait_ms, 0) END) AS retention_ms
        FROM partitions t
        JOIN (SELECT q.*, EXISTS (SELECT 1 FROM groups g WHERE g.queue_id = q.id) AS has_group FROM queues q) q
          ON q.id = t.queue_id
        WHERE t.id > p_after AND t.low_offset < t.next_offset
          AND (q.retention_enabled AND greatest(q.retention_ms, q.completed_retention_ms) > 0
               OR NOT q.has_group AND greatest(q.ttl_ms, q.max_wait_ms) > 0)
        ORDER BY t.id LIMIT p_limit
    )
    SELECT max(l.id), array_agg(l.id) FILTER (
               WHERE coalesce(message_created_at_v1(l.id, l.low_offset), '-infinity')
                   <= v_now - (l.retention_ms + least(l.retention_ms / 50, 300000)) * interval '1 millisecond')
    INTO v_last, v_partition_ids FROM candidates l;
    IF v_last IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT v_last, NULL::bigint, NULL::bigint, 0::bigint;

    -- Most of the work runs without locks: the bound by age does not change any more. The cursors of the groups may
    -- move, so they are read again under the locks.
    SELECT array_agg(k.partition_id), array_agg(k.kept_from), array_agg(k.finished_kept_from)
    INTO v_partition_ids, v_offsets, v_finished_offsets
    FROM retention_bounds_v1(v_partition_ids, v_now) k WHERE greatest(k.kept_from, k.finished_kept_from) > k.low_offset;
    IF v_partition_ids IS NULL THEN
        RETURN;
    END IF;
    PERFORM lock_queues_v1(array_agg(t.queue_id), false) FROM partitions t WHERE t.id = ANY (v_partition_ids);
    PERFORM 1 FROM partitions t WHERE t.id = ANY (v_partition_ids) ORDER BY t.id FOR NO KEY UPDATE;
    PERFORM 1 FROM positions p WHERE p.partition_id = ANY (v_partition_ids)
    ORDER BY p.partition_id, p.group_id FOR UPDATE;

    SELECT array_agg(d.id), array_agg(d.kept_from) INTO v_partition_ids, v_offsets FROM (
        SELECT t.id, t.low_offset, greatest(k.kept_from, CASE WHEN k.finished_kept_from IS NOT NULL THEN (
                   SELECT least(k.finished_kept_from, min(p.cursor)) FROM positions p
                   WHERE p.partition_id = t.id HAVING min(p.cursor) IS NOT NULL) END) AS kept_from
        FROM unnest(v_partition_ids, v_offsets, v_finished_offsets) AS k (id, kept_from, finished_kept_from)
        JOIN partitions t ON t.id = k.id
    ) d WHERE d.kept_from > d.low_offset;
    IF v_partition_ids IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT v_last, d.queue_id, d.group_id, d.messages FROM drop_messages_below_v1(v_partition_ids, v_offsets, v_now) d;
END $$;
