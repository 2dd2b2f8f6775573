-- acknowledge_alert_incident_v1: acknowledge an open incident, and tell the channels that received its first notice.
-- Returns: whether it was open and not acknowledged. If not, nothing changes.
-- Locks: the incident row, so that a resolution at the same time comes before or after as a whole.
CREATE OR REPLACE FUNCTION acknowledge_alert_incident_v1(
    p_organization text, p_project text, p_environment text, p_id uuid, p_by text
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE alert_incidents i SET acknowledged_at = clock_timestamp(), acknowledged_by = p_by
    WHERE i.id = p_id AND i.environment_id = environment_id_v1(p_organization, p_project, p_environment)
      AND i.acknowledged_at IS NULL AND i.resolved_at IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM write_acknowledged_notices_v1(p_id);
    RETURN true;
END $$;
