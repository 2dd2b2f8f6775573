-- resolve_error_group_v1: declare an error group of an environment resolved, in p_queue or in all its queues.
-- An alert on new error groups fires again when one of its queues gets a dead letter with this error.
-- Returns: the queues that have or had the group; none if it is unknown.
-- Locks: the group's rows.
CREATE OR REPLACE FUNCTION resolve_error_group_v1(
    p_organization text, p_project text, p_environment text, p_error_key uuid, p_queue text,
    p_now timestamptz DEFAULT NULL
) RETURNS TABLE (queue text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_environment_id bigint := environment_id_v1(p_organization, p_project, p_environment);
    v_now            timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    INSERT INTO error_groups (environment_id, queue, error_key, pattern, example, first_seen_at, last_seen_at)
    SELECT v_environment_id, g.queue, g.error_key, error_pattern_v1(g.example), left(g.example, 4000), g.first_at, v_now
    FROM present_error_groups_v1(v_environment_id) g
    WHERE g.error_key = p_error_key AND (p_queue IS NULL OR g.queue = p_queue)
    ON CONFLICT DO NOTHING;
    RETURN QUERY
    UPDATE error_groups e SET resolved_at = v_now
    WHERE e.environment_id = v_environment_id AND e.error_key = p_error_key AND (p_queue IS NULL OR e.queue = p_queue)
    RETURNING e.queue;
END $$;
