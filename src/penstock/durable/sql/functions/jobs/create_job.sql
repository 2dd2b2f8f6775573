-- create_job_v1: create a job on dead letters, for any broker to run.
-- With p_sample_size the job requeues so many first, and the rest if p_sample_share of them are acked.
-- Its total is exact if the filters are at most a queue and a group; otherwise it counts matches among the first
-- p_scan_limit dead letters. With p_dry_run the job is not stored.
-- Returns: the job.
-- Raises: PK006 the environment does not exist.
CREATE OR REPLACE FUNCTION create_job_v1(
    p_id uuid, p_organization text, p_project text, p_environment text, p_kind text, p_queue text, p_group text,
    p_partition text, p_from timestamptz, p_before timestamptz, p_error text, p_error_key uuid, p_payload text,
    p_dead_letter_ids bigint[], p_rate int, p_sample_size int, p_sample_share double precision,
    p_sample_timeout_s int, p_created_by text, p_scan_limit int, p_dry_run boolean, p_now timestamptz DEFAULT NULL
) RETURNS jobs
LANGUAGE plpgsql AS $$
DECLARE
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_job  jobs;
    v_next record;
BEGIN
    v_job.id := p_id;
    v_job.environment_id := require_environment_v1(p_organization, p_project, p_environment);
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
    v_job.dead_letter_ids := p_dead_letter_ids;
    v_job.run_queue := false;
    v_job.rate := p_rate;
    v_job.subject := 'dead_letters';
    v_job.sample_size := p_sample_size;
    v_job.sample_share := p_sample_share;
    v_job.sample_timeout_s := p_sample_timeout_s;
    v_job.sample_taken := 0;
    v_job.sample_acked := 0;
    v_job.sample_dead := 0;
    v_job.created_by := p_created_by;
    v_job.skipped := 0;
    v_job.cursor_partition_id := 0;
    v_job.cursor_offset := -1;
    v_job.scanned := 0;
    v_job.changed := 0;
    v_job.cursor_queue_id := 0;
    v_job.cursor_group_id := 0;
    v_job.cursor_failed_at := '-infinity';
    v_job.cursor_dead_letter_id := 0;
    v_job.created_at := v_now;
    v_job.total_is_exact := true;
    IF coalesce(p_partition, p_error, p_payload, p_error_key::text, p_dead_letter_ids::text) IS NULL
       AND p_from IS NULL AND p_before IS NULL THEN
        SELECT coalesce(sum(s.messages), 0) INTO v_job.total
        FROM dead_letter_status_v1(p_organization, p_project, p_environment, p_queue, p_group, NULL, 0, false) s;
    ELSE
        SELECT * INTO v_next FROM next_dead_letters_v1(v_job, p_scan_limit, p_scan_limit);
        v_job.total := cardinality(v_next.ids);
        v_job.total_is_exact := v_next.ended OR p_dead_letter_ids IS NOT NULL;
    END IF;
    IF NOT p_dry_run THEN
        INSERT INTO jobs SELECT (v_job).*;
    END IF;
    RETURN v_job;
END $$;
