-- add_error_group_deaths_v1: add dead letters of queues, error groups and clock hours to the groups that are ignored or
-- resolved. Other groups do not count them: their state does not depend on it. The arrays have equal length; NULL: none.
-- Locks: the groups' rows.
-- Cost: one index lookup per element.
CREATE OR REPLACE FUNCTION add_error_group_deaths_v1(
    p_environment_ids bigint[], p_queues text[], p_error_keys uuid[], p_hours timestamptz[], p_deaths bigint[]
) RETURNS void
LANGUAGE sql AS $$
    WITH changes AS MATERIALIZED (
        SELECT * FROM unnest(p_environment_ids, p_queues, p_error_keys, p_hours, p_deaths)
            AS c (environment_id, queue, error_key, hour, deaths)
    ), counted AS (
        UPDATE error_groups e SET deaths = e.deaths + c.deaths
        FROM (SELECT c.environment_id, c.queue, c.error_key, sum(c.deaths)::bigint AS deaths
              FROM changes c GROUP BY 1, 2, 3) c
        WHERE e.environment_id = c.environment_id AND e.queue = c.queue AND e.error_key = c.error_key
          AND e.state IN ('ignored', 'resolved')
        RETURNING e.environment_id, e.queue, e.error_key, e.ignored_rate
    )
    INSERT INTO error_group_hours AS h (environment_id, queue, error_key, hour, deaths)
    SELECT c.environment_id, c.queue, c.error_key, c.hour, c.deaths
    FROM changes c JOIN counted e USING (environment_id, queue, error_key)
    WHERE e.ignored_rate IS NOT NULL
    ON CONFLICT (environment_id, queue, error_key, hour) DO UPDATE SET deaths = h.deaths + excluded.deaths
$$;
