-- make_job_v1: note a job on dead letters, for whoever has time. What it will find is told as far as it is known at
-- once: exactly, if no more than a queue and a group is named; else what there is among the first p_look letters.
-- With p_dry nothing is noted. Returns the job.
CREATE OR REPLACE FUNCTION make_job_v1(
    p_id uuid, p_organization text, p_project text, p_environment text, p_kind text, p_queue text, p_group text,
    p_partition text, p_from timestamptz, p_before timestamptz, p_error text, p_error_key uuid, p_payload text,
    p_letter_ids bigint[], p_rate int, p_look int, p_dry boolean, p_now timestamptz DEFAULT NULL
) RETURNS jobs
LANGUAGE plpgsql AS $$
DECLARE
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_job  jobs;
    v_next record;
BEGIN
    v_job.id := p_id;
    IF NOT p_dry THEN
        INSERT INTO environments (organization, project, name) VALUES (p_organization, p_project, p_environment)
        ON CONFLICT DO NOTHING;
    END IF;
    v_job.environment_id := environment_v1(p_organization, p_project, p_environment);
    v_job.kind := p_kind;
    v_job.state := 'waiting';
    v_job.queue := p_queue;
    v_job.group_name := p_group;
    v_job.partition := p_partition;
    v_job.failed_from := p_from;
    v_job.failed_before := least(p_before, v_now);
    v_job.error := p_error;
    v_job.error_key := p_error_key;
    v_job.payload := p_payload;
    v_job.letter_ids := p_letter_ids;
    v_job.run_queue := false;
    v_job.rate := p_rate;
    v_job.looked_at := 0;
    v_job.changed := 0;
    v_job.at_queue_id := 0;
    v_job.at_group_id := 0;
    v_job.at_failed_at := '-infinity';
    v_job.at_id := 0;
    v_job.created_at := v_now;
    v_job.total_is_exact := true;
    IF v_job.environment_id IS NULL THEN
        v_job.total := 0;
        RETURN v_job;
    END IF;
    IF coalesce(p_partition, p_error, p_payload, p_error_key::text, p_letter_ids::text) IS NULL
       AND p_from IS NULL AND p_before IS NULL THEN
        SELECT coalesce(sum(s.messages), 0) INTO v_job.total
        FROM dead_status_v1(p_organization, p_project, p_environment, p_queue, p_group, NULL, 0, false) s;
    ELSE
        SELECT * INTO v_next FROM next_dead_v1(v_job, p_look, p_look);
        v_job.total := cardinality(v_next.ids);
        v_job.total_is_exact := v_next.ended OR p_letter_ids IS NOT NULL;
    END IF;
    IF NOT p_dry THEN
        INSERT INTO jobs SELECT (v_job).*;
    END IF;
    RETURN v_job;
END $$;

-- take_job_v1: the oldest job that waits, or whose owner has not been heard of, leased to p_owner; no row if none.
CREATE OR REPLACE FUNCTION take_job_v1(p_owner uuid, p_lease_ms int, p_now timestamptz DEFAULT NULL)
RETURNS SETOF jobs
LANGUAGE sql AS $$
    UPDATE jobs j SET state = 'running', owner = p_owner, started_at = coalesce(j.started_at, m.now),
           lease_until = m.now + p_lease_ms * interval '1 millisecond'
    FROM (SELECT coalesce(p_now, clock_timestamp()) AS now) m
    WHERE j.id = (
        SELECT k.id FROM jobs k
        WHERE k.state IN ('waiting', 'running')
          AND (k.lease_until IS NULL OR k.lease_until < coalesce(p_now, clock_timestamp()))
        ORDER BY k.created_at LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING j.*
$$;

-- advance_job_v1: do the next chunk of a job and move it on, all or nothing, and renew its lease.
-- Returns the job as it is then, and of a requeue what went where, and which letters have to be sealed first. A job
-- that p_owner does not hold any more, or that was cancelled, is not touched. A requeue that a queue has no room for
-- stays where it is and says so in `note`: what was taken is gone from the letters, so nothing is taken twice.
-- Locks: the job, then those of requeue_dead_v1, or letters by id.
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
    SELECT * INTO v_next FROM next_dead_v1(job, p_limit, p_look);
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
        FROM requeue_dead_v1(v_next.ids, p_message_ids, p_now) r JOIN queues q ON q.id = r.queue_id;
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
