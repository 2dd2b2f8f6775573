-- record_deletion_progress_v1: store how far the deletion of an environment has come.
-- Locks: the environment.
CREATE OR REPLACE FUNCTION record_deletion_progress_v1(
    p_organization text, p_project text, p_environment text, p_progress jsonb
) RETURNS void
LANGUAGE sql AS $$
    UPDATE environments SET deletion_progress = p_progress
    WHERE (organization, project, name) = (p_organization, p_project, p_environment)
      AND deletion_requested_at IS NOT NULL
$$;
