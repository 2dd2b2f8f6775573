-- count_dead_tasks_v1: add dead tasks of run queues to the error groups that count them. Tasks that died up to
-- tasks_counted_to are counted already, so repeated ones change nothing.
-- Locks: the groups' rows.
-- Cost: that of error_pattern_v1 per task.
CREATE OR REPLACE FUNCTION count_dead_tasks_v1(
    p_environment_id bigint, p_queues text[], p_errors text[], p_died_at timestamptz[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_deaths record;
BEGIN
    SELECT array_agg(k.environment_id) AS environment_ids, array_agg(k.queue) AS queues,
           array_agg(k.error_key) AS error_keys, array_agg(k.hour) AS hours, array_agg(k.deaths) AS deaths
    INTO v_deaths
    FROM (SELECT e.environment_id, e.queue, e.error_key,
                 date_bin('1 hour', t.died_at, '2000-01-01T00:00:00Z') AS hour, count(*) AS deaths
          FROM unnest(p_queues, p_errors, p_died_at) AS t (queue, error, died_at)
          JOIN error_groups e ON e.environment_id = p_environment_id AND e.queue = t.queue
                             AND e.error_key = md5(error_pattern_v1(t.error))::uuid
          WHERE t.died_at > e.tasks_counted_to
          GROUP BY e.environment_id, e.queue, e.error_key, hour) k;
    PERFORM add_error_group_deaths_v1(
        v_deaths.environment_ids, v_deaths.queues, v_deaths.error_keys, v_deaths.hours, v_deaths.deaths);
    UPDATE error_groups e SET tasks_counted_to = t.died_at
    FROM (SELECT t.queue, md5(error_pattern_v1(t.error))::uuid AS error_key, max(t.died_at) AS died_at
          FROM unnest(p_queues, p_errors, p_died_at) AS t (queue, error, died_at) GROUP BY 1, 2) t
    WHERE e.environment_id = p_environment_id AND e.queue = t.queue AND e.error_key = t.error_key
      AND t.died_at > e.tasks_counted_to;
END $$;
