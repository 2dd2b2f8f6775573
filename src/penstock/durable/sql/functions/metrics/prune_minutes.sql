-- prune_minutes_v1: forget minute rows from before p_before, at most p_limit of either table; how many went.
CREATE OR REPLACE FUNCTION prune_minutes_v1(p_before timestamptz, p_limit int) RETURNS bigint
LANGUAGE sql AS $$
    WITH workers AS (
        DELETE FROM worker_metrics WHERE ctid = ANY (array(
            SELECT m.ctid FROM worker_metrics m WHERE m.bucket_at < p_before ORDER BY m.bucket_at LIMIT p_limit))
        RETURNING 1
    ), queues AS (
        DELETE FROM queue_lag_metrics WHERE ctid = ANY (array(
            SELECT m.ctid FROM queue_lag_metrics m WHERE m.bucket_at < p_before ORDER BY m.bucket_at LIMIT p_limit))
        RETURNING 1
    )
    SELECT greatest((SELECT count(*) FROM workers), (SELECT count(*) FROM queues))
$$;
