-- worker_health_v1: report the health of broker processes per bucket, from p_from until before p_to.
-- With p_each there is a row per process with its hostname, worker number and pid; otherwise these are NULL.
-- p_hostname and p_worker are filters.
-- Returns: averages of the once-a-second samples are per process; the `*_sum` columns are their numerators.
CREATE OR REPLACE FUNCTION worker_health_v1(
    p_from timestamptz, p_to timestamptz, p_bucket interval, p_each boolean, p_hostname text, p_worker int
) RETURNS TABLE (
    bucket_at timestamptz, hostname text, worker int, pid int, started_at timestamptz, workers bigint,
    covered_s double precision, process_s double precision, samples bigint,
    push_requests bigint, push_messages bigint, pop_requests bigint, pop_messages bigint,
    ack_requests bigint, ack_messages bigint, transaction_requests bigint, transaction_messages bigint,
    database_errors bigint, dead_letters bigint, cpu_s double precision,
    late_count bigint, late_sum_ms double precision, late_max_ms double precision,
    busy_connections_sum bigint, busy_connections_max bigint,
    free_connections_sum bigint, free_connections_min bigint,
    connection_waiters_sum bigint, connection_waiters_max bigint,
    pending_requests_sum bigint, pending_requests_max bigint,
    parked_pops_sum bigint, parked_pops_max bigint,
    spilled_sum bigint, spilled_max bigint,
    resident_bytes_sum bigint, resident_bytes_max bigint, pending jsonb
)
LANGUAGE sql STABLE AS $$
    WITH selected AS (
        SELECT m.*, date_bin(p_bucket, m.bucket_at, timestamptz 'epoch') AS bucket,
               CASE WHEN p_each THEN m.hostname END AS group_host, CASE WHEN p_each THEN m.worker END AS group_worker,
               CASE WHEN p_each THEN m.pid END AS group_pid, CASE WHEN p_each THEN m.started_at END AS group_start
        FROM worker_metrics m
        WHERE m.bucket_at >= date_bin(p_bucket, p_from, timestamptz 'epoch') AND m.bucket_at < p_to
          AND m.hostname = coalesce(p_hostname, m.hostname) AND m.worker = coalesce(p_worker, m.worker)
    ), pending_sums AS (
        SELECT c.bucket, c.group_host, c.group_worker, c.group_pid, c.group_start, w.key,
               sum((w.value ->> 'sum')::bigint) AS summed, max((w.value ->> 'max')::bigint) AS highest
        FROM selected c CROSS JOIN LATERAL jsonb_each(c.pending) w GROUP BY 1, 2, 3, 4, 5, 6
    ), pending_by_bucket AS (
        SELECT w.bucket, w.group_host, w.group_worker, w.group_pid, w.group_start,
               jsonb_object_agg(w.key, jsonb_build_object('sum', w.summed, 'max', w.highest)) AS pending
        FROM pending_sums w GROUP BY 1, 2, 3, 4, 5
    )
    SELECT c.bucket, c.group_host, c.group_worker, c.group_pid, c.group_start,
           count(DISTINCT (c.hostname, c.worker, c.pid, c.started_at)),
           covered_seconds_v1(range_agg(tstzrange(c.covered_from, c.covered_to))),
           sum(extract(epoch FROM c.covered_to - c.covered_from))::double precision, sum(c.samples)::bigint,
           sum(c.push_requests)::bigint, sum(c.push_messages)::bigint, sum(c.pop_requests)::bigint,
           sum(c.pop_messages)::bigint, sum(c.ack_requests)::bigint, sum(c.ack_messages)::bigint,
           sum(c.transaction_requests)::bigint, sum(c.transaction_messages)::bigint,
           sum(c.database_errors)::bigint, sum(c.dead_letters)::bigint, sum(c.cpu_s),
           sum(c.late_count)::bigint, sum(c.late_sum_ms), max(c.late_max_ms),
           sum(c.busy_connections_sum)::bigint, max(c.busy_connections_max),
           sum(c.free_connections_sum)::bigint, min(c.free_connections_min),
           sum(c.connection_waiters_sum)::bigint, max(c.connection_waiters_max),
           sum(c.pending_requests_sum)::bigint, max(c.pending_requests_max),
           sum(c.parked_pops_sum)::bigint, max(c.parked_pops_max),
           sum(c.spilled_sum)::bigint, max(c.spilled_max),
           sum(c.resident_bytes_sum)::bigint, max(c.resident_bytes_max),
           (SELECT o.pending FROM pending_by_bucket o
            WHERE (o.bucket, o.group_host, o.group_worker, o.group_pid, o.group_start)
                  IS NOT DISTINCT FROM (c.bucket, c.group_host, c.group_worker, c.group_pid, c.group_start))
    FROM selected c GROUP BY c.bucket, c.group_host, c.group_worker, c.group_pid, c.group_start
    ORDER BY c.bucket, c.group_host, c.group_worker, c.group_start
$$;
