-- jobs_v1: a page of an environment's jobs, the latest first.
-- Locks: none.
-- Cost: follows the page and p_offset.
CREATE OR REPLACE FUNCTION jobs_v1(p_organization text, p_project text, p_environment text, p_limit int, p_offset int)
RETURNS SETOF jobs
LANGUAGE sql STABLE AS $$
    SELECT j.* FROM jobs j WHERE j.environment_id = environment_id_v1(p_organization, p_project, p_environment)
    ORDER BY j.created_at DESC, j.id LIMIT p_limit OFFSET p_offset
$$;
