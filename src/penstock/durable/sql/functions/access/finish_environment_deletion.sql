-- finish_environment_deletion_v1: delete the row of an environment that is being deleted, if nothing refers to it.
-- Entries of the audit log stay; they have its name.
-- Returns: whether it was deleted; false if a queue or another row was created before the last broker learnt of the
-- deletion. The caller then starts again.
-- Locks: the environment; the access version.
CREATE OR REPLACE FUNCTION finish_environment_deletion_v1(p_organization text, p_project text, p_environment text)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM environments
    WHERE (organization, project, name) = (p_organization, p_project, p_environment)
      AND deletion_requested_at IS NOT NULL;
    PERFORM raise_access_version_v1();
    RETURN true;
EXCEPTION WHEN foreign_key_violation THEN
    RETURN false;
END $$;
