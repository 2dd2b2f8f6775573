-- message_job_partitions_v1: the partitions of a job on messages from its cursor on, by id.
-- Locks: none.
-- Cost: follows the partitions of the queue.
CREATE OR REPLACE FUNCTION message_job_partitions_v1(p_job jobs) RETURNS SETOF bigint
LANGUAGE sql STABLE AS $$
    SELECT t.id FROM queues q JOIN partitions t ON t.queue_id = q.id
    WHERE q.environment_id = p_job.environment_id AND q.name = p_job.queue
      AND (p_job.partition IS NULL OR t.name = p_job.partition) AND t.id >= p_job.cursor_partition_id
    ORDER BY t.id
$$;
