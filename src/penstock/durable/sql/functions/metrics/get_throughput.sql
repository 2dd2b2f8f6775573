-- get_throughput: what all brokers did together, per bucket (a multiple of a minute) from p_from until before p_to.
-- Rates are over the seconds that some process covers, so the running minute and one in which brokers started or died
-- read right. A bucket that nothing covers has no row: nothing is known of it. Averages are sums over counts.
-- Cost follows the number of processes and minutes. Names are qualified: people call it from any session.
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
    WITH summed AS (
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
    SELECT s.bucket_at, s.workers, s.covered_s,
           s.push_requests, s.push_messages, s.pop_requests, s.pop_messages, s.ack_requests, s.ack_messages,
           s.transaction_requests, s.transaction_messages, s.database_errors, s.dead_letters,
           s.push_messages / nullif(s.covered_s, 0), s.pop_messages / nullif(s.covered_s, 0),
           s.ack_messages / nullif(s.covered_s, 0), s.transaction_requests / nullif(s.covered_s, 0),
           s.lag_count, s.lag_sum_ms, s.lag_sum_ms / nullif(s.lag_count, 0)::double precision,
           CASE WHEN s.lag_count > 0 THEN s.max_lag_ms END
    FROM summed s ORDER BY s.bucket_at
$$;
