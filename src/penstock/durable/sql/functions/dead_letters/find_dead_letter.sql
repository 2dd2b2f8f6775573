-- find_dead_letter_v1: one dead letter with the names of its queue, partition and group; no row if the environment does
-- not have it. A group that was deleted has no name.
-- Locks: none.
-- Cost: one index lookup per table.
CREATE OR REPLACE FUNCTION find_dead_letter_v1(
    p_organization text, p_project text, p_environment text, p_dead_letter_id bigint
) RETURNS TABLE (id bigint, queue text, partition_id bigint, partition text, group_name text, message_offset bigint,
                 message_id uuid, transaction_id text, trace_id uuid, payload bytea, error text, attempts int,
                 created_at timestamptz, failed_at timestamptz, error_key uuid, deaths int, earlier_attempts int,
                 first_created_at timestamptz, first_transaction_id text)
LANGUAGE sql STABLE AS $$
    SELECT d.id, q.name, d.partition_id, t.name, g.name, d.message_offset, d.message_id, d.transaction_id,
           d.trace_id, d.payload, d.error, d.attempts, d.created_at, d.failed_at, d.error_key, d.deaths,
           d.earlier_attempts, d.first_created_at, d.first_transaction_id
    FROM dead_letters d JOIN queues q ON q.id = d.queue_id
    LEFT JOIN partitions t ON t.id = d.partition_id LEFT JOIN groups g ON g.id = d.group_id
    WHERE d.id = p_dead_letter_id
      AND q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
$$;
