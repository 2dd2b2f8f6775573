-- delete_dead_letters_and_traces_v1: delete up to p_limit dead letters, and as many traces and events of messages, of a
-- queue.
-- The caller repeats it until it returns 0, so that deleting a queue never is one long statement.
-- Returns: the number of rows deleted.
CREATE OR REPLACE FUNCTION delete_dead_letters_and_traces_v1(p_queue_id bigint, p_limit int) RETURNS bigint
LANGUAGE sql AS $$
    WITH deleted_dead_letters AS (
        DELETE FROM dead_letters WHERE id IN (
            SELECT d.id FROM dead_letters d WHERE d.queue_id = p_queue_id LIMIT p_limit)
        RETURNING 1
    ), selected_traces AS MATERIALIZED (
        SELECT x.id, x.environment_id, x.names, x.created_at
        FROM partitions t JOIN traces x ON x.partition_id = t.id
        WHERE t.queue_id = p_queue_id LIMIT p_limit
    ), deleted_names AS (
        DELETE FROM trace_names n USING selected_traces d
        WHERE n.environment_id = d.environment_id AND n.name = ANY (d.names)
          AND n.created_at = d.created_at AND n.trace_id = d.id
    ), deleted_traces AS (
        DELETE FROM traces x USING selected_traces d WHERE x.id = d.id RETURNING 1
    ), deleted_events AS (
        DELETE FROM message_events e WHERE e.ctid = ANY (array(
            SELECT o.ctid FROM partitions t JOIN message_events o ON o.partition_id = t.id
            WHERE t.queue_id = p_queue_id LIMIT p_limit))
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM deleted_dead_letters) + (SELECT count(*) FROM deleted_traces)
         + (SELECT count(*) FROM deleted_events)
$$;
