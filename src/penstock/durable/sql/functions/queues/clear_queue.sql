-- clear_queue_v1: delete up to p_limit dead letters and as many traces of a queue; how many there were.
-- Called until it finds nothing, so that deleting a queue never is one long statement.
CREATE OR REPLACE FUNCTION clear_queue_v1(p_queue_id bigint, p_limit int) RETURNS bigint
LANGUAGE sql AS $$
    WITH letters AS (
        DELETE FROM dead_letters WHERE id IN (
            SELECT d.id FROM dead_letters d WHERE d.queue_id = p_queue_id LIMIT p_limit)
        RETURNING 1
    ), doomed AS MATERIALIZED (
        SELECT x.id, x.environment_id, x.names, x.created_at
        FROM partitions t JOIN traces x ON x.partition_id = t.id
        WHERE t.queue_id = p_queue_id LIMIT p_limit
    ), unnamed AS (
        DELETE FROM trace_names n USING doomed d
        WHERE n.environment_id = d.environment_id AND n.name = ANY (d.names)
          AND n.created_at = d.created_at AND n.trace_id = d.id
    ), forgotten AS (
        DELETE FROM traces x USING doomed d WHERE x.id = d.id RETURNING 1
    )
    SELECT (SELECT count(*) FROM letters) + (SELECT count(*) FROM forgotten)
$$;
