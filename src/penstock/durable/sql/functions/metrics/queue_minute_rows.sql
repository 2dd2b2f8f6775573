-- queue_minute_rows_v1: read the minute rows of an environment's queues, or of one queue, from p_from until before
-- p_to. Two branches, so that the rows of one queue are found by their index.
CREATE OR REPLACE FUNCTION queue_minute_rows_v1(
    p_organization text, p_project text, p_environment text, p_from timestamptz, p_to timestamptz,
    p_queue text, p_group text
) RETURNS SETOF queue_lag_metrics
LANGUAGE sql STABLE AS $$
    SELECT m.* FROM queue_lag_metrics m
    WHERE p_queue IS NULL AND m.bucket_at >= p_from AND m.bucket_at < p_to
      AND (m.organization, m.project, m.environment) = (p_organization, p_project, p_environment)
      AND m.group_name = coalesce(p_group, m.group_name)
    UNION ALL
    SELECT m.* FROM queue_lag_metrics m
    WHERE m.queue = p_queue AND m.bucket_at >= p_from AND m.bucket_at < p_to
      AND (m.organization, m.project, m.environment) = (p_organization, p_project, p_environment)
      AND m.group_name = coalesce(p_group, m.group_name)
$$;
