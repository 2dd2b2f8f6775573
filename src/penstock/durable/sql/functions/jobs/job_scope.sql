-- job_scope_v1: the environment that a job belongs to.
-- Locks: none.
-- Cost: one index lookup per table.
CREATE OR REPLACE FUNCTION job_scope_v1(p_id uuid)
RETURNS TABLE (organization text, project text, environment text)
LANGUAGE sql STABLE AS $$
    SELECT e.organization, e.project, e.name FROM jobs j JOIN environments e ON e.id = j.environment_id
    WHERE j.id = p_id
$$;
