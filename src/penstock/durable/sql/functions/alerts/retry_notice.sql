-- retry_notice_v1: send a failed notice again, with all its attempts.
-- Returns: whether it was failed.
-- Locks: the notice.
CREATE OR REPLACE FUNCTION retry_notice_v1(p_organization text, p_project text, p_environment text, p_id uuid)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE alert_notices n SET state = 'pending', attempts = 0, next_attempt_at = clock_timestamp()
    WHERE n.id = p_id AND n.state = 'failed'
      AND n.environment_id = environment_id_v1(p_organization, p_project, p_environment);
    RETURN FOUND;
END $$;
