-- environment_totals_v1: one row of totals over an environment's queues, or over those of a namespace and a task.
-- Locks: none.
-- Cost: follows the selected queues and their partitions, groups and live leases; never messages.
CREATE OR REPLACE FUNCTION environment_totals_v1(
    p_organization text, p_project text, p_environment text, p_namespace text, p_task text
) RETURNS TABLE (queues bigint, namespaces bigint, tasks bigint, partitions bigint, groups bigint, pushed bigint,
                 kept bigint, depth bigint, running bigint, dead bigint)
LANGUAGE sql STABLE AS $$
    WITH selected AS MATERIALIZED (
        SELECT q.id, q.namespace, q.task FROM queues q
        WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
          AND (p_namespace IS NULL OR q.namespace = p_namespace) AND (p_task IS NULL OR q.task = p_task)
    )
    SELECT count(*), count(DISTINCT nullif(s.namespace, '')), count(DISTINCT nullif(s.task, '')),
           min(stored.partitions), (SELECT count(*) FROM groups g WHERE g.queue_id IN (SELECT i.id FROM selected i)),
           (SELECT coalesce(sum(y.messages), 0) FROM tallies y
            WHERE y.group_id = 0 AND y.queue_id IN (SELECT i.id FROM selected i))::bigint,
           min(stored.kept), min(gauges.depth), min(gauges.running),
           (SELECT coalesce(sum(c.messages), 0)
            FROM (SELECT queue_id, messages FROM dead_counts UNION ALL SELECT queue_id, messages FROM dead_tallies) c
            WHERE c.queue_id IN (SELECT i.id FROM selected i))::bigint
    FROM (SELECT count(*) AS partitions, coalesce(sum(p.next_offset - p.low_offset), 0)::bigint AS kept
          FROM partitions p WHERE p.queue_id IN (SELECT i.id FROM selected i)) stored
    CROSS JOIN (SELECT coalesce(sum(m.depth), 0)::bigint AS depth, coalesce(sum(m.running), 0)::bigint AS running
                FROM queue_gauges_v1(array(SELECT i.id FROM selected i)) m WHERE m.group_name = '') gauges
    LEFT JOIN selected s ON true
$$;
