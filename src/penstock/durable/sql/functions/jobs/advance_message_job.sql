-- advance_message_job_v1: process the next messages of a job, move its cursor and renew its lease, all or nothing.
-- Skips and counts messages under a live lease: of the job's group, or of any group for a purge. Does not change a job
-- that was cancelled or that p_owner no longer holds.
-- Returns: the job after the batch, the queue, and how many of its messages were changed.
-- Locks: the job, then those of delete_message_v1 or declare_dead_v1, partitions and positions in the order of ids.
CREATE OR REPLACE FUNCTION advance_message_job_v1(
    p_id uuid, p_owner uuid, p_limit int, p_scan_limit int, p_lease_ms int, p_now timestamptz DEFAULT NULL,
    OUT job jobs, OUT queue_id bigint, OUT changed bigint
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now      timestamptz := coalesce(p_now, clock_timestamp());
    v_group_id bigint;
    v_next     record;
    v_message  record;
    v_skipped  bigint := 0;
BEGIN
    changed := 0;
    SELECT j.* INTO job FROM jobs j WHERE j.id = p_id FOR UPDATE;
    IF job.state IS DISTINCT FROM 'running' OR job.owner IS DISTINCT FROM p_owner THEN
        RETURN;
    END IF;
    SELECT q.id, g.id INTO queue_id, v_group_id
    FROM queues q LEFT JOIN groups g ON g.queue_id = q.id AND g.name = job.group_name
    WHERE q.environment_id = job.environment_id AND q.name = job.queue;
    SELECT * INTO v_next FROM next_messages_v1(job, p_limit, p_scan_limit);
    IF job.kind = 'purge' THEN
        LOCK TABLE chunk_stages IN ROW EXCLUSIVE MODE;
        PERFORM lock_queues_v1(ARRAY[queue_id], false);
        PERFORM 1 FROM partitions t WHERE t.id = ANY (v_next.partition_ids) ORDER BY t.id FOR NO KEY UPDATE;
    END IF;
    PERFORM 1 FROM positions p
    WHERE p.partition_id = ANY (v_next.partition_ids) AND (job.kind = 'purge' OR p.group_id = v_group_id)
    ORDER BY p.partition_id, p.group_id FOR UPDATE;
    FOR v_message IN
        SELECT m.*, EXISTS (
            SELECT 1 FROM positions p
            WHERE p.partition_id = m.partition_id AND (job.kind = 'purge' OR p.group_id = v_group_id)
              AND p.lease_id IS NOT NULL AND p.lease_expires_at > v_now
              AND m.message_offset >= greatest(p.cursor, p.lease_from) AND m.message_offset < p.lease_to
              AND NOT p.returned @> m.message_offset AND NOT p.finished @> m.message_offset) AS is_leased
        FROM unnest(v_next.partition_ids, v_next.offsets, v_next.transaction_ids)
             AS m (partition_id, message_offset, transaction_id)
        ORDER BY m.partition_id, m.message_offset
    LOOP
        IF v_message.is_leased THEN
            v_skipped := v_skipped + 1;
        ELSIF job.kind = 'purge' THEN
            changed := changed + delete_message_v1(v_message.partition_id, v_message.transaction_id, v_now)::int;
        ELSIF declare_dead_v1(v_message.partition_id, v_group_id, v_message.message_offset, job.reason, v_now)
              IN ('dead', 'discarded') THEN
            changed := changed + 1;
        END IF;
    END LOOP;
    UPDATE jobs j SET changed = j.changed + advance_message_job_v1.changed, skipped = j.skipped + v_skipped,
           scanned = j.scanned + v_next.scanned, cursor_partition_id = v_next.cursor_partition_id,
           cursor_offset = v_next.cursor_offset, lease_expires_at = v_now + p_lease_ms * interval '1 millisecond',
           state = CASE WHEN v_next.ended THEN 'done' ELSE j.state END,
           finished_at = CASE WHEN v_next.ended THEN v_now END
    WHERE j.id = p_id RETURNING j.* INTO job;
END $$;
