-- error_group_records_v1: the recorded error groups of an environment, each with its state now. A group without a record
-- is new. p_queue and p_error_key are filters; NULL matches all.
-- p_task_keys, p_task_died_at: the dead tasks of p_queue, if that is a run queue. Those of durable queues are counted in
-- PostgreSQL: the counted dead letters plus those that are not folded yet, in one snapshot.
-- Locks: none.
-- Cost: follows the recorded groups and the changes not folded yet.
CREATE OR REPLACE FUNCTION error_group_records_v1(
    p_environment_id bigint, p_queue text, p_error_key uuid, p_task_keys uuid[], p_task_died_at timestamptz[],
    p_now timestamptz
) RETURNS TABLE (record error_groups, current_state text, state_deaths bigint)
LANGUAGE sql STABLE AS $$
    WITH tasks AS MATERIALIZED (
        SELECT t.error_key, t.died_at, date_bin('1 hour', t.died_at, '2000-01-01T00:00:00Z') AS hour
        FROM unnest(p_task_keys, p_task_died_at) AS t (error_key, died_at)
    ), unfolded AS MATERIALIZED (
        SELECT q.name AS queue, y.error_key, y.hour, sum(y.deaths)::bigint AS deaths
        FROM dead_tallies y JOIN queues q ON q.id = y.queue_id
        WHERE y.deaths > 0 AND q.environment_id = p_environment_id
        GROUP BY q.name, y.error_key, y.hour
    )
    SELECT e, error_group_state_v1(e, n.deaths, r.max_per_hour, p_now), n.deaths
    FROM error_groups e
    CROSS JOIN LATERAL (
        SELECT greatest(
            e.deaths + coalesce((SELECT sum(u.deaths) FROM unfolded u
                                 WHERE e.state IN ('ignored', 'resolved') AND u.queue = e.queue
                                   AND u.error_key = e.error_key), 0)::bigint,
            (SELECT count(*) FROM tasks t WHERE t.error_key = e.error_key AND t.died_at > e.state_since)) AS deaths
    ) n
    CROSS JOIN LATERAL (
        SELECT max(h.deaths) AS max_per_hour FROM (
            SELECT sum(k.deaths)::bigint AS deaths FROM (
                SELECT g.hour, g.deaths FROM error_group_hours g
                WHERE g.environment_id = e.environment_id AND g.queue = e.queue AND g.error_key = e.error_key
                UNION ALL
                SELECT u.hour, u.deaths FROM unfolded u WHERE u.queue = e.queue AND u.error_key = e.error_key) k
            GROUP BY k.hour
            UNION ALL
            SELECT count(*) FROM tasks t WHERE t.error_key = e.error_key AND t.died_at > e.state_since
            GROUP BY t.hour) h
        WHERE e.ignored_rate IS NOT NULL
    ) r
    WHERE e.environment_id = p_environment_id AND (p_queue IS NULL OR e.queue = p_queue)
      AND (p_error_key IS NULL OR e.error_key = p_error_key)
$$;
