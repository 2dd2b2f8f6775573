-- prune_minute_metrics_v1: delete minute rows from before p_before, at most p_limit of each table.
-- Returns: the larger of the two numbers of deleted rows.
CREATE OR REPLACE FUNCTION prune_minute_metrics_v1(p_before timestamptz, p_limit int) RETURNS bigint
LANGUAGE sql AS $$
    WITH deleted_workers AS (
        DELETE FROM worker_metrics WHERE ctid = ANY (array(
            SELECT m.ctid FROM worker_metrics m WHERE m.bucket_at < p_before ORDER BY m.bucket_at LIMIT p_limit))
        RETURNING 1
    ), deleted_queues AS (
        DELETE FROM queue_lag_metrics WHERE ctid = ANY (array(
            SELECT m.ctid FROM queue_lag_metrics m WHERE m.bucket_at < p_before ORDER BY m.bucket_at LIMIT p_limit))
        RETURNING 1
    )
    SELECT greatest((SELECT count(*) FROM deleted_workers), (SELECT count(*) FROM deleted_queues))
$$;
