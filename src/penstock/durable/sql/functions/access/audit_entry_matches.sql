-- audit_entry_matches_v1: whether an audit entry passes a filter; NULL matches everything.
-- p_subject may leave out the kind before the colon. p_action and p_object are texts that occur, in any case.
CREATE OR REPLACE FUNCTION audit_entry_matches_v1(
    p_entry audit_entries, p_environment_name text, p_subject text, p_action text, p_object text, p_status int,
    p_denied boolean
) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT (p_environment_name IS NULL OR p_entry.environment = p_environment_name)
       AND (p_subject IS NULL OR p_entry.subject = p_subject
            OR substr(p_entry.subject, strpos(p_entry.subject, ':') + 1) = p_subject)
       AND (p_action IS NULL OR strpos(lower(p_entry.action), lower(p_action)) > 0)
       AND (p_object IS NULL OR strpos(lower(p_entry.object::text), lower(p_object)) > 0)
       AND (p_status IS NULL OR p_entry.status = p_status)
       AND (p_denied IS NULL OR p_entry.denied = p_denied)
$$;
