-- alert_channels_v1: the channels of an environment by name; with p_name, only that one.
-- Locks: none.
CREATE OR REPLACE FUNCTION alert_channels_v1(p_organization text, p_project text, p_environment text, p_name text)
RETURNS SETOF alert_channels
LANGUAGE sql STABLE AS $$
    SELECT c.* FROM alert_channels c
    WHERE c.environment_id = environment_id_v1(p_organization, p_project, p_environment)
      AND (p_name IS NULL OR c.name = p_name)
    ORDER BY c.name
$$;
