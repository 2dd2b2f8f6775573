-- advance_job_v1: do the next chunk of a job and move it on, all or nothing, and renew its lease.
-- Returns the job as it is then, and of a requeue what went where, and which letters have to be sealed first. A job
-- that p_owner does not hold any more, or that was cancelled, is not touched. A requeue that a queue has no room for
-- stays where it is and says so in `note`: what was taken is gone from the letters, so nothing is taken twice.
-- Locks: the job, then those of requeue_dead_letters_v1, or letters by id.
CREATE OR REPLACE FUNCTION advance_job_v1(
    p_id uuid, p_owner uuid, p_limit int, p_look int, p_message_ids uuid[], p_lease_ms int,
    p_now timestamptz DEFAULT NULL,
    OUT job jobs, OUT queue_ids bigint[], OUT partition_ids bigint[], OUT unsealed bigint[]
)
LANGUAGE plpgsql AS $$
DECLARE
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_next record;
    v_done bigint := 0;
    v_held text;
BEGIN
    SELECT j.* INTO job FROM jobs j WHERE j.id = p_id FOR UPDATE;
    IF job.state IS DISTINCT FROM 'running' OR job.owner IS DISTINCT FROM p_owner THEN
        RETURN;
    END IF;
    SELECT * INTO v_next FROM next_dead_letters_v1(job, p_limit, p_look);
    IF job.kind = 'purge' THEN
        PERFORM 1 FROM dead_letters d WHERE d.id = ANY (v_next.ids) ORDER BY d.id FOR UPDATE;
        DELETE FROM dead_letters d WHERE d.id = ANY (v_next.ids);
        GET DIAGNOSTICS v_done = ROW_COUNT;
    ELSE
        SELECT count(*) FILTER (WHERE r.outcome = 'queued'),
               array_agg(r.queue_id) FILTER (WHERE r.outcome = 'queued'),
               array_agg(r.partition_id) FILTER (WHERE r.outcome = 'queued'),
               array_agg(r.id) FILTER (WHERE r.outcome = 'unsealed'),
               min(r.outcome || ' ' || q.name) FILTER (WHERE r.outcome IN ('queue_full', 'behind'))
        INTO v_done, queue_ids, partition_ids, unsealed, v_held
        FROM requeue_dead_letters_v1(v_next.ids, p_message_ids, p_now) r JOIN queues q ON q.id = r.queue_id;
    END IF;
    UPDATE jobs j SET changed = j.changed + v_done, note = v_held,
           lease_until = v_now + p_lease_ms * interval '1 millisecond'
    WHERE j.id = p_id RETURNING j.* INTO job;
    IF v_held IS NULL AND unsealed IS NULL THEN
        UPDATE jobs j SET looked_at = j.looked_at + v_next.looked_at, at_queue_id = v_next.at_queue_id,
               at_group_id = v_next.at_group_id, at_failed_at = v_next.at_failed_at, at_id = v_next.at_id,
               state = CASE WHEN v_next.ended THEN 'done' ELSE j.state END,
               finished_at = CASE WHEN v_next.ended THEN v_now END
        WHERE j.id = p_id RETURNING j.* INTO job;
    END IF;
END $$;
