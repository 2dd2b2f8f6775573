-- environments_to_delete_v1: the environments whose deletion was requested p_age_s ago, the first request first.
-- Locks: none.
-- Cost: follows the environments.
CREATE OR REPLACE FUNCTION environments_to_delete_v1(p_age_s double precision)
RETURNS TABLE (organization text, project text, environment text, deletion_progress jsonb)
LANGUAGE sql STABLE AS $$
    SELECT e.organization, e.project, e.name, e.deletion_progress FROM environments e
    WHERE e.deletion_requested_at <= clock_timestamp() - make_interval(secs => p_age_s)
    ORDER BY e.deletion_requested_at, e.id
$$;
