-- queue_lag_digests_v1: the lag digests of an environment's queues from p_from until before p_to, each with the start
-- of its bucket. p_queue and p_group select; NULL selects all.
-- Locks: none.
-- Cost: follows the rows of that time, or with p_queue those of the queue alone.
CREATE OR REPLACE FUNCTION queue_lag_digests_v1(
    p_organization text, p_project text, p_environment text, p_from timestamptz, p_to timestamptz,
    p_bucket interval, p_queue text, p_group text
) RETURNS TABLE (bucket_at timestamptz, queue text, group_name text, lag_digest bytea)
LANGUAGE sql STABLE AS $$
    SELECT date_bin(p_bucket, m.bucket_at, timestamptz 'epoch'), m.queue, m.group_name, m.lag_digest
    FROM queue_minute_rows_v1(p_organization, p_project, p_environment,
                              date_bin(p_bucket, p_from, timestamptz 'epoch'), p_to, p_queue, p_group) m
    WHERE m.lag_digest IS NOT NULL
$$;
