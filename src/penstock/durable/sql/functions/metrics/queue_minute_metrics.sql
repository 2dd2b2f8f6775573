-- queue_minute_metrics_v1: sum the minute rows of queues per bucket, queue and group, from p_from until before p_to.
-- p_queue and p_group are filters.
-- Cost: follows the rows of that time; with p_queue those of the queue alone.
CREATE OR REPLACE FUNCTION queue_minute_metrics_v1(
    p_organization text, p_project text, p_environment text, p_from timestamptz, p_to timestamptz,
    p_bucket interval, p_queue text, p_group text
) RETURNS TABLE (
    bucket_at timestamptz, queue text, group_name text, push_messages bigint, pop_messages bigint,
    completed bigint, failed bigint, released bigint, dead_letters bigint, expired bigint,
    lag_count bigint, lag_sum_ms bigint, lag_max_ms bigint
)
LANGUAGE sql STABLE AS $$
    SELECT date_bin(p_bucket, m.bucket_at, timestamptz 'epoch'), m.queue, m.group_name,
           sum(m.push_messages)::bigint, sum(m.pop_messages)::bigint, sum(m.completed)::bigint,
           sum(m.failed)::bigint, coalesce(sum(m.released), 0)::bigint, sum(m.dead_letters)::bigint, sum(m.expired)::bigint,
           sum(m.lag_count)::bigint, sum(m.lag_sum_ms)::bigint, max(m.lag_max_ms)
    FROM queue_minute_rows_v1(p_organization, p_project, p_environment,
                              date_bin(p_bucket, p_from, timestamptz 'epoch'), p_to, p_queue, p_group) m
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
$$;
