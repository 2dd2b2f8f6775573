-- environment_id_v1: read the id of an environment.
-- Returns: NULL if nothing was ever created in it.
CREATE OR REPLACE FUNCTION environment_id_v1(p_organization text, p_project text, p_environment text)
RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT e.id FROM environments e
    WHERE (e.organization, e.project, e.name) = (p_organization, p_project, p_environment)
$$;
