-- audit_entries_v1: read a page of audit entries, the latest first.
-- p_environment is organization, project and environment, and selects the entries of the present environment of that
-- name; NULL: of every environment. p_environment_name selects by name alone, also an environment that was deleted.
-- The page has the entries from p_start on that come before (p_cursor_at, p_cursor_id).
-- Locks: none.
-- Cost: the entries of the environment in that time, until the page is full; with p_request_id, those of the request.
CREATE OR REPLACE FUNCTION audit_entries_v1(
    p_environment text[], p_environment_name text, p_request_id text, p_subject text, p_action text, p_object text,
    p_status int, p_denied boolean, p_start timestamptz, p_cursor_at timestamptz, p_cursor_id bigint, p_limit int
) RETURNS SETOF audit_entries
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_environment_id bigint := environment_id_v1(p_environment[1], p_environment[2], p_environment[3]);
BEGIN
    -- One statement for each index: a generic plan cannot choose it by the parameters.
    IF p_request_id IS NOT NULL THEN
        RETURN QUERY SELECT a.* FROM audit_entries a
            WHERE a.request_id = p_request_id AND (p_environment IS NULL OR a.environment_id = v_environment_id)
              AND a.recorded_at >= p_start AND (a.recorded_at, a.id) < (p_cursor_at, p_cursor_id)
              AND audit_entry_matches_v1(a, p_environment_name, p_subject, p_action, p_object, p_status, p_denied)
            ORDER BY a.recorded_at DESC, a.id DESC LIMIT p_limit;
    ELSIF p_environment IS NOT NULL THEN
        RETURN QUERY SELECT a.* FROM audit_entries a
            WHERE a.environment_id = v_environment_id
              AND a.recorded_at >= p_start AND (a.recorded_at, a.id) < (p_cursor_at, p_cursor_id)
              AND audit_entry_matches_v1(a, p_environment_name, p_subject, p_action, p_object, p_status, p_denied)
            ORDER BY a.recorded_at DESC, a.id DESC LIMIT p_limit;
    ELSE
        RETURN QUERY SELECT a.* FROM audit_entries a
            WHERE a.recorded_at >= p_start AND (a.recorded_at, a.id) < (p_cursor_at, p_cursor_id)
              AND audit_entry_matches_v1(a, p_environment_name, p_subject, p_action, p_object, p_status, p_denied)
            ORDER BY a.recorded_at DESC, a.id DESC LIMIT p_limit;
    END IF;
END $$;
