-- create_environment_v1: create an environment.
-- Returns: whether it was created. It was not if it exists, also while it is being deleted.
-- Locks: its name, by the unique index; the access version.
CREATE OR REPLACE FUNCTION create_environment_v1(
    p_organization text, p_project text, p_environment text, p_quotas jsonb
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO environments (organization, project, name, quotas)
    VALUES (p_organization, p_project, p_environment, p_quotas) ON CONFLICT DO NOTHING;
    PERFORM raise_access_version_v1() WHERE FOUND;
    RETURN FOUND;
END $$;
