-- advance_job_v1: process the next batch of a job, move its cursor and renew its lease, all or nothing.
-- Does not change a job that was cancelled or that p_owner no longer holds. If a queue has no room for a requeue, the
-- cursor stays and `note` says why; messages that were requeued have no dead letters any more, so none is requeued
-- twice.
-- Returns: the job after the batch; of a requeue the queues and partitions of the messages, and the dead letters that
-- must be encrypted first.
-- Locks: the job, then those of requeue_dead_letters_v1, or dead letters by id.
CREATE OR REPLACE FUNCTION advance_job_v1(
    p_id uuid, p_owner uuid, p_limit int, p_scan_limit int, p_message_ids uuid[], p_lease_ms int,
    p_now timestamptz DEFAULT NULL,
    OUT job jobs, OUT queue_ids bigint[], OUT partition_ids bigint[], OUT unsealed bigint[]
)
LANGUAGE plpgsql AS $$
DECLARE
    v_now        timestamptz := coalesce(p_now, clock_timestamp());
    v_next       record;
    v_changed    bigint := 0;
    v_blocked_by text;
BEGIN
    SELECT j.* INTO job FROM jobs j WHERE j.id = p_id FOR UPDATE;
    IF job.state IS DISTINCT FROM 'running' OR job.owner IS DISTINCT FROM p_owner THEN
        RETURN;
    END IF;
    SELECT * INTO v_next FROM next_dead_letters_v1(job, p_limit, p_scan_limit);
    IF job.kind = 'purge' THEN
        PERFORM 1 FROM dead_letters d WHERE d.id = ANY (v_next.ids) ORDER BY d.id FOR UPDATE;
        DELETE FROM dead_letters d WHERE d.id = ANY (v_next.ids);
        GET DIAGNOSTICS v_changed = ROW_COUNT;
    ELSE
        SELECT count(*) FILTER (WHERE r.outcome = 'queued'),
               array_agg(r.queue_id) FILTER (WHERE r.outcome = 'queued'),
               array_agg(r.partition_id) FILTER (WHERE r.outcome = 'queued'),
               array_agg(r.id) FILTER (WHERE r.outcome = 'unsealed'),
               min(r.outcome || ' ' || q.name) FILTER (WHERE r.outcome IN ('queue_full', 'operations_waiting'))
        INTO v_changed, queue_ids, partition_ids, unsealed, v_blocked_by
        FROM requeue_dead_letters_v1(v_next.ids, p_message_ids, 'group', p_now) r
        JOIN queues q ON q.id = r.queue_id;
    END IF;
    UPDATE jobs j SET changed = j.changed + v_changed, note = v_blocked_by,
           lease_expires_at = v_now + p_lease_ms * interval '1 millisecond'
    WHERE j.id = p_id RETURNING j.* INTO job;
    IF v_blocked_by IS NULL AND unsealed IS NULL THEN
        UPDATE jobs j SET scanned = j.scanned + v_next.scanned, cursor_queue_id = v_next.cursor_queue_id,
               cursor_group_id = v_next.cursor_group_id, cursor_failed_at = v_next.cursor_failed_at,
               cursor_dead_letter_id = v_next.cursor_dead_letter_id,
               state = CASE WHEN v_next.ended THEN 'done' ELSE j.state END,
               finished_at = CASE WHEN v_next.ended THEN v_now END
        WHERE j.id = p_id RETURNING j.* INTO job;
    END IF;
END $$;
