-- current_alert_silences_v1: the silences of all environments that have not ended at p_now.
-- Cost: follows the silences.
CREATE OR REPLACE FUNCTION current_alert_silences_v1(p_now timestamptz)
RETURNS TABLE (environment_id bigint, silence jsonb)
LANGUAGE sql STABLE AS $$
    SELECT s.environment_id, s.silence FROM alert_silences s WHERE s.ends_at IS NULL OR s.ends_at > p_now
$$;
