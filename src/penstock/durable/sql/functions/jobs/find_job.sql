-- find_job_v1: the job of an id; no row if the environment does not have it.
-- Locks: none.
-- Cost: one index lookup.
CREATE OR REPLACE FUNCTION find_job_v1(p_organization text, p_project text, p_environment text, p_id uuid)
RETURNS SETOF jobs
LANGUAGE sql STABLE AS $$
    SELECT j.* FROM jobs j
    WHERE j.id = p_id AND j.environment_id = environment_id_v1(p_organization, p_project, p_environment)
$$;
