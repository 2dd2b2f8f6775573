-- set_environment_quotas_v1: replace the quotas of an environment.
-- Returns: whether the environment exists and is not being deleted.
-- Locks: the environment; the access version.
CREATE OR REPLACE FUNCTION set_environment_quotas_v1(
    p_organization text, p_project text, p_environment text, p_quotas jsonb
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE environments SET quotas = p_quotas
    WHERE (organization, project, name) = (p_organization, p_project, p_environment) AND deletion_requested_at IS NULL;
    PERFORM raise_access_version_v1() WHERE FOUND;
    RETURN FOUND;
END $$;
