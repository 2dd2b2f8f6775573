-- environment_queue_gauges_v1: the rows of queue_gauges_v1 for the first p_limit queues that were created in an
-- environment, with their names and whether they are paused.
-- Locks: none.
-- Cost: follows the groups and live leases of those queues.
CREATE OR REPLACE FUNCTION environment_queue_gauges_v1(
    p_organization text, p_project text, p_environment text, p_limit int
) RETURNS TABLE (queue text, group_name text, depth bigint, running bigint, oldest_at timestamptz,
                 paused boolean)
LANGUAGE sql STABLE AS $$
    WITH selected AS MATERIALIZED (
        SELECT q.id, q.name, q.paused FROM queues q
        WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
        ORDER BY q.id LIMIT p_limit
    )
    SELECT s.name, m.group_name, m.depth, m.running, m.oldest_at, s.paused
    FROM queue_gauges_v1(array(SELECT i.id FROM selected i)) m JOIN selected s ON s.id = m.queue_id
    ORDER BY m.queue_id, m.group_name
$$;
