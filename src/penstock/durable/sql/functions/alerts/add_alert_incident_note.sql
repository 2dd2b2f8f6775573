-- add_alert_incident_note_v1: add a note to an incident of the environment.
-- Returns: the note; no row if the incident does not exist.
-- Locks: the incident FOR KEY SHARE, by the foreign key.
CREATE OR REPLACE FUNCTION add_alert_incident_note_v1(
    p_organization text, p_project text, p_environment text, p_id uuid, p_author text, p_note text
) RETURNS TABLE (at timestamptz, author text, note text)
LANGUAGE sql AS $$
    INSERT INTO alert_incident_notes (incident_id, author, note)
    SELECT i.id, p_author, p_note FROM alert_incidents i
    WHERE i.id = p_id AND i.environment_id = environment_id_v1(p_organization, p_project, p_environment)
    RETURNING alert_incident_notes.at, alert_incident_notes.author, alert_incident_notes.note
$$;
