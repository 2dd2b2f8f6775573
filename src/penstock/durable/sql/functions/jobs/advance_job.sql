-- advance_job_v1: process the next batch of a job, move its cursor and renew its lease, all or nothing.
-- Does not change a job that was cancelled or that p_owner no longer holds. If a queue has no room for a requeue, the
-- cursor stays and `note` says why; messages that were requeued have no dead letters any more, so none is requeued
-- twice.
-- A job with a sample first requeues that many dead letters, then waits until decide_sample_v1 says that it passed.
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
    v_limit      int := p_limit;
    v_is_sample  boolean;
    v_letters    record;
BEGIN
    SELECT j.* INTO job FROM jobs j WHERE j.id = p_id FOR UPDATE;
    IF job.state IS DISTINCT FROM 'running' OR job.owner IS DISTINCT FROM p_owner THEN
        RETURN;
    END IF;
    v_is_sample := job.sample_size IS NOT NULL AND job.sample_passed IS NULL;
    IF v_is_sample AND job.sample_ends_at IS NOT NULL THEN
        PERFORM record_sample_outcomes_v1(p_id);
        job := decide_sample_v1(p_id, v_now, p_lease_ms);
        RETURN;
    END IF;
    IF v_is_sample THEN
        v_limit := least(p_limit, job.sample_size - job.sample_taken);
    END IF;
    SELECT * INTO v_next FROM next_dead_letters_v1(job, v_limit, p_scan_limit);
    IF job.kind = 'purge' THEN
        PERFORM 1 FROM dead_letters d WHERE d.id = ANY (v_next.ids) ORDER BY d.id FOR UPDATE;
        DELETE FROM dead_letters d WHERE d.id = ANY (v_next.ids);
        GET DIAGNOSTICS v_changed = ROW_COUNT;
    ELSE
        SELECT array_agg(d.id) AS ids, array_agg(d.group_id) AS group_ids INTO v_letters
        FROM dead_letters d WHERE v_is_sample AND d.id = ANY (v_next.ids);
        WITH requeued AS MATERIALIZED (
            SELECT * FROM requeue_dead_letters_v1(v_next.ids, p_message_ids, 'group', p_now)
        ), sample_rows AS (
            INSERT INTO job_samples (job_id, item, partition_id, group_id, message_offset)
            SELECT p_id, r.partition_id || '/' || l.group_id || '/' || r.message_offset, r.partition_id, l.group_id,
                   r.message_offset
            FROM requeued r JOIN unnest(v_letters.ids, v_letters.group_ids) AS l (id, group_id) ON l.id = r.id
            WHERE r.outcome = 'queued'
        )
        SELECT count(*) FILTER (WHERE r.outcome = 'queued'),
               array_agg(r.queue_id) FILTER (WHERE r.outcome = 'queued'),
               array_agg(r.partition_id) FILTER (WHERE r.outcome = 'queued'),
               array_agg(r.id) FILTER (WHERE r.outcome = 'unsealed'),
               min(r.outcome || ' ' || q.name) FILTER (WHERE r.outcome IN ('queue_full', 'operations_waiting'))
        INTO v_changed, queue_ids, partition_ids, unsealed, v_blocked_by
        FROM requeued r
        JOIN queues q ON q.id = r.queue_id;
    END IF;
    UPDATE jobs j SET changed = j.changed + v_changed, note = v_blocked_by,
           sample_taken = j.sample_taken + CASE WHEN v_is_sample THEN v_changed ELSE 0 END,
           lease_expires_at = v_now + p_lease_ms * interval '1 millisecond'
    WHERE j.id = p_id RETURNING j.* INTO job;
    IF v_blocked_by IS NULL AND unsealed IS NULL AND v_is_sample
       AND job.sample_taken > 0 AND (v_next.ended OR job.sample_taken = job.sample_size) THEN
        v_next.ended := false;   -- the job ends when its sample is decided
        UPDATE jobs j SET sample_ends_at = v_now + j.sample_timeout_s * interval '1 second', note = 'sample_waiting'
        WHERE j.id = p_id;
    END IF;
    IF v_blocked_by IS NULL AND unsealed IS NULL THEN
        UPDATE jobs j SET scanned = j.scanned + v_next.scanned, cursor_queue_id = v_next.cursor_queue_id,
               cursor_group_id = v_next.cursor_group_id, cursor_failed_at = v_next.cursor_failed_at,
               cursor_dead_letter_id = v_next.cursor_dead_letter_id,
               state = CASE WHEN v_next.ended THEN 'done' ELSE j.state END,
               finished_at = CASE WHEN v_next.ended THEN v_now END
        WHERE j.id = p_id RETURNING j.* INTO job;
    END IF;
END $$;
