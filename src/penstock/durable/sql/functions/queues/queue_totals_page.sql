-- queue_totals_page_v1: a page of an environment's queues by name, each with the totals of queue_totals_v1. p_queue,
-- p_namespace and p_task select queues; NULL selects all. Every row carries the number of selected queues in `total`.
-- Locks: none.
-- Cost: follows the queues of the environment, and the partitions, groups and live leases of the page; never messages.
CREATE OR REPLACE FUNCTION queue_totals_page_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_namespace text, p_task text,
    p_limit int, p_offset int
) RETURNS TABLE (id bigint, name text, namespace text, task text, created_at timestamptz, total bigint,
                 partitions bigint, groups bigint, pushed bigint, kept bigint, depth bigint, running bigint,
                 dead bigint, paused boolean)
LANGUAGE sql STABLE AS $$
    WITH page AS MATERIALIZED (
        SELECT q.id, q.name, q.namespace, q.task, q.created_at, q.paused, count(*) OVER () AS total
        FROM queues q WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
          AND (p_queue IS NULL OR q.name = p_queue) AND (p_namespace IS NULL OR q.namespace = p_namespace)
          AND (p_task IS NULL OR q.task = p_task)
        ORDER BY q.name LIMIT p_limit OFFSET p_offset
    )
    SELECT p.id, p.name, p.namespace, p.task, p.created_at, p.total,
           t.partitions, t.groups, t.pushed, t.kept, t.depth, t.running, t.dead, p.paused
    FROM page p JOIN queue_totals_v1(array(SELECT g.id FROM page g)) t ON t.queue_id = p.id ORDER BY p.name
$$;
