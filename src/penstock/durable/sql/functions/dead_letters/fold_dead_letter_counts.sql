-- fold_dead_letter_counts_v1: add up to p_limit rows of dead_tallies to the counts they change.
-- The deaths go to the error groups that count them: add_error_group_deaths_v1.
-- A count that becomes negative stays negative, so that the recount reports it. Run by one session at a time.
-- Returns: the number of rows folded.
-- Locks: none that a new dead letter, a requeue or a purge waits for.
CREATE OR REPLACE FUNCTION fold_dead_letter_counts_v1(p_limit int) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_folded bigint;
    v_deaths record;
BEGIN
    WITH removed AS (
        DELETE FROM dead_tallies WHERE id IN (
            SELECT y.id FROM dead_tallies y ORDER BY y.id LIMIT p_limit FOR UPDATE SKIP LOCKED)
        RETURNING queue_id, group_id, error_key, hour, messages, deaths
    ), foldable AS MATERIALIZED (
        SELECT y.* FROM removed y WHERE EXISTS (SELECT 1 FROM queues q WHERE q.id = y.queue_id)
    ), patterns AS (
        -- Any dead letter of the error group gives the pattern. If none is left, the pattern is not needed.
        INSERT INTO dead_errors (key, pattern)
        SELECT k.error_key, error_pattern_v1(d.error)
        FROM (SELECT DISTINCT ON (y.error_key) y.queue_id, y.group_id, y.error_key FROM foldable y
              WHERE y.messages > 0 AND NOT EXISTS (SELECT 1 FROM dead_errors e WHERE e.key = y.error_key)) k
        CROSS JOIN LATERAL (
            SELECT d.error FROM dead_letters d
            WHERE d.queue_id = k.queue_id AND d.group_id = k.group_id AND d.error_key = k.error_key LIMIT 1) d
        ON CONFLICT DO NOTHING
    ), count_rows AS (
        INSERT INTO dead_counts AS c (queue_id, group_id, messages)
        SELECT y.queue_id, y.group_id, sum(y.messages) FROM foldable y GROUP BY y.queue_id, y.group_id
        ON CONFLICT (queue_id, group_id) DO UPDATE SET messages = c.messages + excluded.messages
    ), error_rows AS (
        INSERT INTO dead_error_counts AS c (queue_id, group_id, error_key, messages)
        SELECT y.queue_id, y.group_id, y.error_key, sum(y.messages) FROM foldable y
        GROUP BY y.queue_id, y.group_id, y.error_key
        ON CONFLICT (queue_id, group_id, error_key) DO UPDATE SET messages = c.messages + excluded.messages
    ), hour_rows AS (
        INSERT INTO dead_hours AS c (queue_id, group_id, hour, error_key, messages)
        SELECT y.queue_id, y.group_id, y.hour, y.error_key, sum(y.messages) FROM foldable y
        GROUP BY y.queue_id, y.group_id, y.hour, y.error_key
        ON CONFLICT (queue_id, group_id, hour, error_key) DO UPDATE SET messages = c.messages + excluded.messages
    ), deaths AS (
        SELECT q.environment_id, q.name AS queue, y.error_key, y.hour, sum(y.deaths)::bigint AS deaths
        FROM foldable y JOIN queues q ON q.id = y.queue_id
        WHERE y.deaths > 0 GROUP BY q.environment_id, q.name, y.error_key, y.hour
    )
    SELECT (SELECT count(*) FROM removed) AS folded, array_agg(k.environment_id) AS environment_ids,
           array_agg(k.queue) AS queues, array_agg(k.error_key) AS error_keys, array_agg(k.hour) AS hours,
           array_agg(k.deaths) AS deaths
    INTO v_deaths FROM deaths k;
    v_folded := v_deaths.folded;
    PERFORM add_error_group_deaths_v1(
        v_deaths.environment_ids, v_deaths.queues, v_deaths.error_keys, v_deaths.hours, v_deaths.deaths);
    DELETE FROM dead_error_counts c WHERE c.messages = 0;
    DELETE FROM dead_hours c WHERE c.messages = 0;
    RETURN v_folded;
END $$;
