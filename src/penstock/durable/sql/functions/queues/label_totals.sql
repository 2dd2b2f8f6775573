-- label_totals_v1: the summed totals of an environment's queues per label. p_label is `namespace` or `task`; queues
-- without that label are left out.
-- Locks: none.
-- Cost: follows the queues of the environment and their partitions, groups and live leases; never messages.
CREATE OR REPLACE FUNCTION label_totals_v1(
    p_organization text, p_project text, p_environment text, p_label text
) RETURNS TABLE (label text, queues bigint, partitions bigint, kept bigint, depth bigint, running bigint)
LANGUAGE sql STABLE AS $$
    WITH labelled AS MATERIALIZED (
        SELECT l.* FROM (
            SELECT q.id, CASE p_label WHEN 'namespace' THEN q.namespace WHEN 'task' THEN q.task END AS label
            FROM queues q WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
        ) l WHERE l.label <> ''
    )
    SELECT l.label, count(*), sum(t.partitions)::bigint, sum(t.kept)::bigint, sum(t.depth)::bigint,
           sum(t.running)::bigint
    FROM labelled l JOIN queue_totals_v1(array(SELECT i.id FROM labelled i)) t ON t.queue_id = l.id
    GROUP BY l.label ORDER BY l.label
$$;
