-- delete_alert_silence_v1: delete a silence of the environment.
-- Returns: whether it existed.
-- Locks: the silence.
CREATE OR REPLACE FUNCTION delete_alert_silence_v1(p_organization text, p_project text, p_environment text, p_id uuid)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM alert_silences s
    WHERE s.id = p_id AND s.environment_id = environment_id_v1(p_organization, p_project, p_environment);
    RETURN FOUND;
END $$;
