-- record_audit_entry_v1: append an entry to the audit log.
-- p_environment is organization, project and environment; NULL: the caller is unknown.
-- Locks: none but the new row.
CREATE OR REPLACE FUNCTION record_audit_entry_v1(
    p_environment text[], p_subject text, p_token_id uuid, p_address text, p_action text, p_object jsonb,
    p_status int, p_denied boolean, p_before jsonb, p_after jsonb, p_request_id text
) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO audit_entries (environment_id, environment, subject, token_id, address, action, object, status, denied,
                               before, after, request_id)
    VALUES (environment_id_v1(p_environment[1], p_environment[2], p_environment[3]),
            coalesce(array_to_string(p_environment, '/'), ''), p_subject, p_token_id, p_address, p_action, p_object,
            p_status, p_denied, p_before, p_after, p_request_id)
$$;
