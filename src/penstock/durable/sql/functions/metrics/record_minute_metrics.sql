-- record_minute_metrics_v1: write rows of worker_metrics and queue_lag_metrics, all or none of them.
-- They replace earlier rows of the same process and minute. Each queue row belongs to one of the worker rows. Rows of an
-- environment that is being deleted are left out.
-- Locks: only rows that their own process writes.
CREATE OR REPLACE FUNCTION record_minute_metrics_v1(p_workers jsonb, p_queues jsonb) RETURNS void
LANGUAGE sql AS $$
    WITH new_rows AS (SELECT w.* FROM jsonb_populate_recordset(NULL::worker_metrics, p_workers) w)
    DELETE FROM worker_metrics m USING new_rows n
    WHERE (m.bucket_at, m.hostname, m.worker, m.pid, m.started_at)
        = (n.bucket_at, n.hostname, n.worker, n.pid, n.started_at);
    WITH new_rows AS (SELECT w.* FROM jsonb_populate_recordset(NULL::worker_metrics, p_workers) w)
    DELETE FROM queue_lag_metrics m USING new_rows n
    WHERE (m.bucket_at, m.hostname, m.worker, m.pid, m.started_at)
        = (n.bucket_at, n.hostname, n.worker, n.pid, n.started_at);
    INSERT INTO worker_metrics SELECT * FROM jsonb_populate_recordset(NULL::worker_metrics, p_workers);
    INSERT INTO queue_lag_metrics
    SELECT q.* FROM jsonb_populate_recordset(NULL::queue_lag_metrics, p_queues) q
    JOIN environments e ON (e.organization, e.project, e.name) = (q.organization, q.project, q.environment)
    WHERE e.deletion_requested_at IS NULL;
$$;
