-- decide_sample_v1: decide whether the sample of a running job passed, as soon as its recorded outcomes allow it.
-- It passes when none is pending, or at its end time, if at least sample_share of it is acked. Otherwise the job fails,
-- and its note says why; it does so at once when too many are dead again. Until then the job waits.
-- Returns: the job afterwards.
-- Locks: the job's row.
-- Cost: follows the size of the sample.
CREATE OR REPLACE FUNCTION decide_sample_v1(p_id uuid, p_now timestamptz, p_lease_ms int) RETURNS jobs
LANGUAGE plpgsql AS $$
DECLARE
    v_job      jobs;
    v_acked    int;
    v_dead     int;
    v_required int;
    v_errors   text;
BEGIN
    SELECT count(*) FILTER (WHERE s.outcome = 'acked'), count(*) FILTER (WHERE s.outcome = 'dead')
    INTO v_acked, v_dead FROM job_samples s WHERE s.job_id = p_id;
    UPDATE jobs j SET sample_acked = v_acked, sample_dead = v_dead, note = 'sample_waiting',
           lease_expires_at = p_now + p_lease_ms * interval '1 millisecond'
    WHERE j.id = p_id RETURNING j.* INTO v_job;
    v_required := ceil(v_job.sample_taken * v_job.sample_share);
    IF v_acked >= v_required AND (v_acked + v_dead = v_job.sample_taken OR p_now >= v_job.sample_ends_at) THEN
        UPDATE jobs j SET sample_passed = true, note = NULL WHERE j.id = p_id RETURNING j.* INTO v_job;
    ELSIF v_dead > v_job.sample_taken - v_required OR p_now >= v_job.sample_ends_at THEN
        SELECT string_agg(k.text, '; ') INTO v_errors
        FROM (SELECT coalesce(nullif(error_pattern_v1(s.error), ''), 'no error') || ' (' || count(*) || ')' AS text
              FROM job_samples s WHERE s.job_id = p_id AND s.outcome = 'dead'
              GROUP BY error_pattern_v1(s.error) ORDER BY count(*) DESC LIMIT 3) k;
        UPDATE jobs j SET state = 'failed', sample_passed = false, finished_at = p_now,
               note = format('The sample failed: of %s requeued, %s were acked, %s died again', j.sample_taken, v_acked,
                             v_dead)
                      || CASE WHEN p_now >= j.sample_ends_at AND v_acked + v_dead < j.sample_taken
                              THEN format(' and %s were not finished within %s s',
                                          j.sample_taken - v_acked - v_dead, j.sample_timeout_s) ELSE '' END
                      || coalesce(': ' || v_errors, '') || '. The rest was not requeued.'
        WHERE j.id = p_id RETURNING j.* INTO v_job;
    END IF;
    RETURN v_job;
END $$;
