-- task_error_groups_v1: the recorded error groups of a run queue, each with its state now. p_error_keys, p_died_at: its
-- dead tasks.
-- Locks: none.
-- Cost: that of error_group_records_v1.
CREATE OR REPLACE FUNCTION task_error_groups_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_error_keys uuid[],
    p_died_at timestamptz[], p_now timestamptz DEFAULT NULL
) RETURNS TABLE (record error_groups, current_state text)
LANGUAGE sql STABLE AS $$
    SELECT r.record, r.current_state
    FROM error_group_records_v1(environment_id_v1(p_organization, p_project, p_environment), p_queue, NULL,
                                p_error_keys, p_died_at, coalesce(p_now, clock_timestamp())) r
$$;
