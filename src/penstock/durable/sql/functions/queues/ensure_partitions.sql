-- ensure_partitions_v1: ensure that queues and partitions exist.
-- A new partition gets a position in every group of its queue, so a group never has to search for new partitions.
-- Returns: a row per partition. A partition past its queue's limit is not created and has no row.
-- Raises: PK004 a queue was deleted meanwhile; try again.
-- Locks: the queues by id, so that a group created meanwhile waits and is not missed, and nothing is added to a queue
-- that is being deleted; exclusive for queues with a limit of partitions, else shared.
CREATE OR REPLACE FUNCTION ensure_partitions_v1(
    p_organization text, p_project text, p_environment text, p_queues text[], p_partitions text[]
) RETURNS TABLE (queue text, partition text, queue_id bigint, partition_id bigint, encrypted boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_environment bigint := ensure_queues_v1(p_organization, p_project, p_environment, p_queues);
    v_queue       queues;
    v_ids         bigint[] := '{}';
BEGIN
    FOR v_queue IN
        SELECT q.* FROM queues q WHERE q.environment_id = v_environment AND q.name = ANY (p_queues) ORDER BY q.id
    LOOP
        PERFORM lock_queues_v1(ARRAY[v_queue.id], v_queue.max_partitions > 0);
        v_ids := v_ids || v_queue.id;
    END LOOP;
    IF (SELECT count(*) FROM queues q WHERE q.id = ANY (v_ids))
       < (SELECT count(DISTINCT n) FROM unnest(p_queues) n) THEN
        RAISE EXCEPTION 'a queue was deleted meanwhile' USING ERRCODE = 'PK004';
    END IF;

    WITH created AS (
        INSERT INTO partitions (queue_id, name)
        SELECT n.queue_id, n.partition
        FROM (SELECT q.id AS queue_id, w.partition, q.max_partitions,
                     row_number() OVER (PARTITION BY q.id ORDER BY w.partition) AS new_number
              FROM (SELECT DISTINCT * FROM unnest(p_queues, p_partitions)) AS w (queue, partition)
              JOIN queues q ON q.id = ANY (v_ids) AND q.name = w.queue
              WHERE NOT EXISTS (SELECT 1 FROM partitions p WHERE p.queue_id = q.id AND p.name = w.partition)
             ) n
        WHERE n.max_partitions = 0
           OR n.new_number <= n.max_partitions - (SELECT count(*) FROM partitions p WHERE p.queue_id = n.queue_id)
        ORDER BY n.queue_id, n.partition
        ON CONFLICT DO NOTHING
        RETURNING id, queue_id
    )
    INSERT INTO positions (partition_id, group_id)
    SELECT created.id, g.id FROM created JOIN groups g ON g.queue_id = created.queue_id
    ON CONFLICT DO NOTHING;

    RETURN QUERY
    SELECT DISTINCT q.name, p.name, q.id, p.id, q.encrypted
    FROM unnest(p_queues, p_partitions) AS w (queue, partition)
    JOIN queues q ON q.id = ANY (v_ids) AND q.name = w.queue
    JOIN partitions p ON p.queue_id = q.id AND p.name = w.partition;
END $$;
