-- prune_traces_v1: delete up to p_limit traces, and as many events of messages, older than p_before, the oldest first.
-- The caller repeats it while it returns p_limit.
-- Returns: the number of traces or of events deleted, whichever is larger.
CREATE OR REPLACE FUNCTION prune_traces_v1(p_before timestamptz, p_limit int) RETURNS bigint
LANGUAGE sql AS $$
    WITH selected AS MATERIALIZED (
        SELECT x.id, x.environment_id, x.names, x.created_at FROM traces x
        WHERE x.created_at < p_before ORDER BY x.created_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), deleted_names AS (
        DELETE FROM trace_names n USING selected s
        WHERE n.environment_id = s.environment_id AND n.name = ANY (s.names)
          AND n.created_at = s.created_at AND n.trace_id = s.id
    ), deleted AS (
        DELETE FROM traces x USING selected s WHERE x.id = s.id RETURNING 1
    ), deleted_events AS (
        DELETE FROM message_events e WHERE e.ctid = ANY (array(
            SELECT o.ctid FROM message_events o
            WHERE o.happened_at < p_before ORDER BY o.happened_at LIMIT p_limit FOR UPDATE SKIP LOCKED))
        RETURNING 1
    )
    SELECT greatest((SELECT count(*) FROM deleted), (SELECT count(*) FROM deleted_events))
$$;
