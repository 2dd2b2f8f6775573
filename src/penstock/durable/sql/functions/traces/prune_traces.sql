-- prune_traces_v1: delete up to p_limit traces older than p_before, the oldest first; how many there were.
-- Called again as long as it finds p_limit.
CREATE OR REPLACE FUNCTION prune_traces_v1(p_before timestamptz, p_limit int) RETURNS bigint
LANGUAGE sql AS $$
    WITH doomed AS MATERIALIZED (
        SELECT x.id, x.environment_id, x.names, x.created_at FROM traces x
        WHERE x.created_at < p_before ORDER BY x.created_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), unnamed AS (
        DELETE FROM trace_names n USING doomed d
        WHERE n.environment_id = d.environment_id AND n.name = ANY (d.names)
          AND n.created_at = d.created_at AND n.trace_id = d.id
    ), forgotten AS (
        DELETE FROM traces x USING doomed d WHERE x.id = d.id RETURNING 1
    )
    SELECT count(*) FROM forgotten
$$;
