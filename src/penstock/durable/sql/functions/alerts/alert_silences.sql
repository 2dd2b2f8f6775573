-- alert_silences_v1: a page of an environment's silences, the latest first; with p_id, only that one.
-- Locks: none.
CREATE OR REPLACE FUNCTION alert_silences_v1(
    p_organization text, p_project text, p_environment text, p_id uuid, p_limit int, p_offset int
) RETURNS TABLE (id uuid, silence jsonb, created_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT s.id, s.silence, s.created_at FROM alert_silences s
    WHERE s.environment_id = environment_id_v1(p_organization, p_project, p_environment)
      AND (p_id IS NULL OR s.id = p_id)
    ORDER BY s.created_at DESC, s.id LIMIT p_limit OFFSET p_offset
$$;
