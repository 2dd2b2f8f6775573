-- lag_digests_v1: the lag digests of all broker processes from p_from until before p_to, each with the start of its
-- bucket.
-- Locks: none.
-- Cost: follows the broker processes and minutes of that time.
CREATE OR REPLACE FUNCTION lag_digests_v1(p_from timestamptz, p_to timestamptz, p_bucket interval)
RETURNS TABLE (bucket_at timestamptz, lag_digest bytea)
LANGUAGE sql STABLE AS $$
    SELECT date_bin(p_bucket, m.bucket_at, timestamptz 'epoch'), m.lag_digest
    FROM worker_metrics m
    WHERE m.bucket_at >= date_bin(p_bucket, p_from, timestamptz 'epoch') AND m.bucket_at < p_to
      AND m.lag_digest IS NOT NULL
$$;
