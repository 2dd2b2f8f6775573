-- record_minutes_v1: write rows of worker_metrics and queue_lag_metrics, in place of earlier ones of the same process
-- and minute, all or none of them. Each queue row belongs to a worker row that is given too.
-- Locks: only rows that their own process writes.
CREATE OR REPLACE FUNCTION record_minutes_v1(p_workers jsonb, p_queues jsonb) RETURNS void
LANGUAGE sql AS $$
    WITH given AS (SELECT w.* FROM jsonb_populate_recordset(NULL::worker_metrics, p_workers) w)
    DELETE FROM worker_metrics m USING given g
    WHERE (m.bucket_at, m.hostname, m.worker, m.pid, m.started_at)
        = (g.bucket_at, g.hostname, g.worker, g.pid, g.started_at);
    WITH given AS (SELECT w.* FROM jsonb_populate_recordset(NULL::worker_metrics, p_workers) w)
    DELETE FROM queue_lag_metrics m USING given g
    WHERE (m.bucket_at, m.hostname, m.worker, m.pid, m.started_at)
        = (g.bucket_at, g.hostname, g.worker, g.pid, g.started_at);
    INSERT INTO worker_metrics SELECT * FROM jsonb_populate_recordset(NULL::worker_metrics, p_workers);
    INSERT INTO queue_lag_metrics SELECT * FROM jsonb_populate_recordset(NULL::queue_lag_metrics, p_queues);
$$;
