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
           coalesce(sum(t.partitions), 0)::bigint, coalesce(sum(t.groups), 0)::bigint,
           coalesce(sum(t.pushed), 0)::bigint, coalesce(sum(t.kept), 0)::bigint,
           coalesce(sum(t.depth), 0)::bigint, coalesce(sum(t.running), 0)::bigint,
           coalesce(sum(t.dead), 0)::bigint
    FROM selected s JOIN queue_totals_v1(array(SELECT i.id FROM selected i)) t ON t.queue_id = s.id
$$;
