-- alert_incident_notes_v1: the first p_limit notes of an incident, the oldest first.
-- Locks: none.
CREATE OR REPLACE FUNCTION alert_incident_notes_v1(p_incident_id uuid, p_limit int)
RETURNS TABLE (at timestamptz, author text, note text)
LANGUAGE sql STABLE AS $$
    SELECT n.at, n.author, n.note FROM alert_incident_notes n
    WHERE n.incident_id = p_incident_id ORDER BY n.id LIMIT p_limit
$$;
