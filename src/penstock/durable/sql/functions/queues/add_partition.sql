-- add_partition_v1: ensure that a partition exists, even past its queue's limit of partitions.
-- For messages that the broker accepted while it could not check the limit. Creates the queue too if it is missing.
-- Raises: PK004 the queue was deleted meanwhile; try again.
-- Locks: the queue (exclusive), so that a group created meanwhile waits and is not missed.
CREATE OR REPLACE FUNCTION add_partition_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_partition text,
    OUT queue_id bigint, OUT partition_id bigint, OUT encrypted boolean
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_environment bigint := ensure_queues_v1(p_organization, p_project, p_environment, ARRAY[p_queue]);
    v_queue       queues;
BEGIN
    SELECT q.* INTO v_queue FROM queues q WHERE q.environment_id = v_environment AND q.name = p_queue;
    PERFORM lock_queues_v1(ARRAY[v_queue.id], true);
    IF NOT EXISTS (SELECT 1 FROM queues q WHERE q.id = v_queue.id) THEN
        RAISE EXCEPTION 'the queue was deleted meanwhile' USING ERRCODE = 'PK004';
    END IF;
    WITH created AS (
        INSERT INTO partitions (queue_id, name) VALUES (v_queue.id, p_partition) ON CONFLICT DO NOTHING RETURNING id
    )
    INSERT INTO positions (partition_id, group_id)
    SELECT created.id, g.id FROM created JOIN groups g ON g.queue_id = v_queue.id ON CONFLICT DO NOTHING;
    SELECT v_queue.id, p.id, v_queue.encrypted INTO queue_id, partition_id, encrypted
    FROM partitions p WHERE p.queue_id = v_queue.id AND p.name = p_partition;
END $$;
