-- exceeded_quotas_v1: read which partitions an environment may not have because of its quotas.
-- Existing partitions are always allowed. New queues and partitions are allowed in the order of their names up to
-- p_max_queues and p_max_partitions in the whole environment; NULL: no limit.
-- Returns: one row per partition with the exceeded quota, `queues` or `partitions`; NULL if it is allowed.
-- Locks: none.
-- Cost: follows the partitions of the environment.
CREATE OR REPLACE FUNCTION exceeded_quotas_v1(
    p_organization text, p_project text, p_environment text, p_queues text[], p_partitions text[],
    p_max_queues bigint, p_max_partitions bigint
) RETURNS TABLE (queue text, partition text, exceeded text)
LANGUAGE sql STABLE AS $$
    WITH used AS MATERIALIZED (
        SELECT o.queues, o.partitions FROM environment_objects_v1(p_organization, p_project, p_environment) o
    ), targets AS (
        SELECT w.queue, w.partition, q.id IS NULL AS is_new_queue, t.id IS NULL AS is_new_partition
        FROM (SELECT DISTINCT * FROM unnest(p_queues, p_partitions)) AS w (queue, partition)
        LEFT JOIN queues q ON q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
                          AND q.name = w.queue
        LEFT JOIN partitions t ON t.queue_id = q.id AND t.name = w.partition
    ), ranked AS (
        SELECT n.*, n.is_new_queue
                    AND dense_rank() OVER (PARTITION BY n.is_new_queue ORDER BY n.queue) > p_max_queues - u.queues
                    AS is_queue_too_many
        FROM targets n CROSS JOIN used u
    )
    SELECT r.queue, r.partition, CASE
        WHEN coalesce(r.is_queue_too_many, false) THEN 'queues'
        WHEN r.is_new_partition
             AND row_number() OVER (PARTITION BY r.is_new_partition, coalesce(r.is_queue_too_many, false)
                                    ORDER BY r.queue, r.partition) > p_max_partitions - u.partitions THEN 'partitions'
    END
    FROM ranked r CROSS JOIN used u
$$;
