-- request_environment_deletion_v1: mark an environment as being deleted. Brokers refuse its requests from then on, and
-- one of them deletes what it holds. May be repeated.
-- Returns: whether the environment exists.
-- Locks: the environment; the access version.
CREATE OR REPLACE FUNCTION request_environment_deletion_v1(p_organization text, p_project text, p_environment text)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE environments SET deletion_requested_at = coalesce(deletion_requested_at, clock_timestamp())
    WHERE (organization, project, name) = (p_organization, p_project, p_environment);
    PERFORM raise_access_version_v1() WHERE FOUND;
    RETURN FOUND;
END $$;
