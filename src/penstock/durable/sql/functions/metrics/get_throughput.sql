-- get_throughput: report the activity of all brokers together, per bucket (a multiple of a minute).
-- Covers p_from until before p_to. Rates are over the seconds that at least one process covers, so they are right for
-- the current minute and for minutes in which brokers started or died. Averages are sums over counts.
-- Names are qualified, because people call it from any session.
-- Returns: no row for a bucket that no process covers: its activity is unknown.
-- Cost: follows the number of processes and minutes.
CREATE OR REPLACE FUNCTION get_throughput(
    p_from timestamptz, p_to timestamptz, p_bucket interval DEFAULT interval '1 minute'
) RETURNS TABLE (
    bucket_at timestamptz, workers bigint, covered_s double precision,
    push_requests bigint, push_messages bigint, pop_requests bigint, pop_messages bigint,
    ack_requests bigint, ack_messages bigint, transaction_requests bigint, transaction_messages bigint,
    database_errors bigint, dead_letters bigint,
    push_per_s double precision, pop_per_s double precision, ack_per_s double precision,
    transactions_per_s double precision,
    lag_count bigint, lag_sum_ms bigint, avg_lag_ms double precision, max_lag_ms bigint
)
LANGUAGE sql STABLE AS $$
    WITH buckets AS (
        SELECT date_bin(p_bucket, m.bucket_at, timestamptz 'epoch') AS bucket_at,
               count(DISTINCT (m.hostname, m.worker, m.pid, m.started_at)) AS workers,
               penstock.covered_seconds_v1(range_agg(tstzrange(m.covered_from, m.covered_to))) AS covered_s,
               sum(m.push_requests)::bigint AS push_requests, sum(m.push_messages)::bigint AS push_messages,
               sum(m.pop_requests)::bigint AS pop_requests, sum(m.pop_messages)::bigint AS pop_messages,
               sum(m.ack_requests)::bigint AS ack_requests, sum(m.ack_messages)::bigint AS ack_messages,
               sum(m.transaction_requests)::bigint AS transaction_requests,
               sum(m.transaction_messages)::bigint AS transaction_messages,
               sum(m.database_errors)::bigint AS database_errors, sum(m.dead_letters)::bigint AS dead_letters,
               sum(m.lag_count)::bigint AS lag_count, sum(m.lag_sum_ms)::bigint AS lag_sum_ms,
               max(m.lag_max_ms) AS max_lag_ms
        FROM penstock.worker_metrics m
        WHERE m.bucket_at >= date_bin(p_bucket, p_from, timestamptz 'epoch') AND m.bucket_at < p_to
        GROUP BY 1
    )
    SELECT b.bucket_at, b.workers, b.covered_s,
           b.push_requests, b.push_messages, b.pop_requests, b.pop_messages, b.ack_requests, b.ack_messages,
           b.transaction_requests, b.transaction_messages, b.database_errors, b.dead_letters,
           b.push_messages / nullif(b.covered_s, 0), b.pop_messages / nullif(b.covered_s, 0),
           b.ack_messages / nullif(b.covered_s, 0), b.transaction_requests / nullif(b.covered_s, 0),
           b.lag_count, b.lag_sum_ms, b.lag_sum_ms / nullif(b.lag_count, 0)::double precision,
           CASE WHEN b.lag_count > 0 THEN b.max_lag_ms END
    FROM buckets b ORDER BY b.bucket_at
$$;
