-- create_message_job_v1: create a job that deletes messages of a durable queue (`purge`) or moves them to the dead letters
-- of p_group (`dead_letter`), for any broker to run. It covers messages pushed before its creation.
-- Its total is exact without p_payload; with it, it counts matches among the first p_scan_limit messages. With p_dry_run
-- the job is not stored.
-- Returns: the job.
-- Raises: PK006 the environment does not exist.
CREATE OR REPLACE FUNCTION create_message_job_v1(
    p_organization text, p_project text, p_environment text, p_id uuid, p_kind text, p_queue text, p_group text,
    p_partition text, p_from timestamptz, p_before timestamptz, p_payload text, p_reason text, p_rate int,
    p_created_by text, p_scan_limit int, p_dry_run boolean, p_now timestamptz DEFAULT NULL
) RETURNS jobs
LANGUAGE plpgsql AS $$
DECLARE
    v_job  jobs;
    v_next record;
BEGIN
    v_job := create_job_v1(p_id, p_organization, p_project, p_environment, p_kind, p_queue, p_group, p_partition, p_from,
                           p_before, NULL, NULL, p_payload, '{}', p_rate, NULL, NULL, NULL, p_created_by, 0, true, p_now);
    v_job.subject := 'messages';
    v_job.dead_letter_ids := NULL;
    v_job.reason := p_reason;
    IF p_payload IS NULL THEN
        SELECT coalesce(sum(upper(r) - lower(r)), 0) INTO v_job.total
        FROM message_job_partitions_v1(v_job) t (id) CROSS JOIN LATERAL unnest(message_job_offsets_v1(v_job, t.id)) r;
        v_job.total_is_exact := true;
    ELSE
        SELECT * INTO v_next FROM next_messages_v1(v_job, p_scan_limit, p_scan_limit);
        v_job.total := cardinality(v_next.offsets);
        v_job.total_is_exact := v_next.ended;
    END IF;
    INSERT INTO jobs SELECT (v_job).* WHERE NOT p_dry_run;
    RETURN v_job;
END $$;
