-- record_trace_v1: store a trace of a message.
-- It does not check the message: retention may have dropped it while a consumer worked on it.
-- Returns: the trace's id; NULL if the environment has no such partition.
-- Locks: none that a push, pop or ack could wait for.
CREATE OR REPLACE FUNCTION record_trace_v1(
    p_organization text, p_project text, p_environment text, p_partition_id bigint, p_transaction_id text,
    p_group text, p_event text, p_names text[], p_data bytea, p_now timestamptz DEFAULT NULL
) RETURNS bigint
LANGUAGE sql AS $$
    WITH trace AS (
        INSERT INTO traces (environment_id, partition_id, transaction_id, group_name, event, names, data, created_at)
        SELECT q.environment_id, t.id, p_transaction_id, p_group, p_event, p_names, p_data,
               coalesce(p_now, clock_timestamp())
        FROM partitions t JOIN queues q ON q.id = t.queue_id
        WHERE t.id = p_partition_id
          AND q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
        RETURNING id, environment_id, names, created_at
    ), name_rows AS (
        INSERT INTO trace_names (environment_id, name, created_at, trace_id)
        SELECT DISTINCT w.environment_id, n, w.created_at, w.id FROM trace w CROSS JOIN unnest(w.names) n
    )
    SELECT w.id FROM trace w
$$;
