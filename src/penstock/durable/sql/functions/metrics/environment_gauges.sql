-- environment_gauges_v1: read depth, running messages and the oldest waiting message of whole environments.
-- Depth and running are sums over the queues, as in queue_gauges_v1; an environment without queues has 0.
-- Returns: one row per environment that exists and is not being deleted, in any order. Callers store the gauges, and
-- an environment that was created again must not start with those of its predecessor.
-- Cost: follows the queues, their groups and live leases, never messages or partitions.
CREATE OR REPLACE FUNCTION environment_gauges_v1(
    p_organizations text[], p_projects text[], p_environments text[], p_now timestamptz DEFAULT NULL
) RETURNS TABLE (organization text, project text, environment text, depth bigint, running bigint,
                 oldest_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT w.organization, w.project, w.environment, t.depth, t.running, t.oldest_at
    FROM unnest(p_organizations, p_projects, p_environments) AS w (organization, project, environment)
    JOIN environments e ON (e.organization, e.project, e.name) = (w.organization, w.project, w.environment)
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(g.depth), 0)::bigint AS depth, coalesce(sum(g.running), 0)::bigint AS running,
               min(g.oldest_at) AS oldest_at
        FROM queue_gauges_v1(array(
            SELECT q.id FROM queues q
            WHERE q.environment_id = e.id), p_now) g
        WHERE g.group_name = ''
    ) t
    WHERE e.deletion_requested_at IS NULL
$$;
