-- environments_v1: a page of environments by name, with the number of their queues; NULL names match any.
-- total counts the environments of all pages.
-- Locks: none.
-- Cost: follows the environments, and the queues of the page.
CREATE OR REPLACE FUNCTION environments_v1(
    p_organization text, p_project text, p_environment text, p_limit int, p_offset int
) RETURNS TABLE (organization text, project text, name text, created_at timestamptz, quotas jsonb, queues bigint,
                 deletion_requested_at timestamptz, deletion_progress jsonb, total bigint)
LANGUAGE sql STABLE AS $$
    SELECT e.organization, e.project, e.name, e.created_at, e.quotas,
           (SELECT count(*) FROM queues q WHERE q.environment_id = e.id), e.deletion_requested_at,
           e.deletion_progress, e.total
    FROM (SELECT n.*, count(*) OVER () AS total FROM environments n
          WHERE (p_organization IS NULL OR n.organization = p_organization)
            AND (p_project IS NULL OR n.project = p_project) AND (p_environment IS NULL OR n.name = p_environment)
          ORDER BY n.organization, n.project, n.name LIMIT p_limit OFFSET p_offset) e
    ORDER BY e.organization, e.project, e.name
$$;
