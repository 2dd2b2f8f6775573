-- ensure_partitions_v1: ids for queue and partition names, made where missing.
-- A new partition gets a position in every group its queue has; so a group never has to look for one.
-- Locks: the queues' rows for key share, so that a group made meanwhile waits, and is not missed.
CREATE OR REPLACE FUNCTION ensure_partitions_v1(
    p_organization text, p_project text, p_environment text, p_queues text[], p_partitions text[]
) RETURNS TABLE (queue text, partition text, queue_id bigint, partition_id bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_environment bigint := ensure_queues_v1(p_organization, p_project, p_environment, p_queues);
BEGIN
    PERFORM 1 FROM queues WHERE environment_id = v_environment AND name = ANY (p_queues)
    ORDER BY id FOR KEY SHARE;

    WITH made AS (
        INSERT INTO partitions (queue_id, name)
        SELECT DISTINCT q.id, w.partition
        FROM unnest(p_queues, p_partitions) AS w (queue, partition)
        JOIN queues q ON q.environment_id = v_environment AND q.name = w.queue
        ORDER BY q.id, w.partition
        ON CONFLICT DO NOTHING
        RETURNING id, queue_id
    )
    INSERT INTO positions (partition_id, group_id)
    SELECT made.id, g.id FROM made JOIN groups g ON g.queue_id = made.queue_id
    ON CONFLICT DO NOTHING;

    RETURN QUERY
    SELECT DISTINCT q.name, p.name, q.id, p.id
    FROM unnest(p_queues, p_partitions) AS w (queue, partition)
    JOIN queues q ON q.environment_id = v_environment AND q.name = w.queue
    JOIN partitions p ON p.queue_id = q.id AND p.name = w.partition;
END $$;
