-- merge_error_groups_v1: record the error groups of an environment's dead letters; list those that are new or back.
-- p_queues, p_errors, p_died_at: dead tasks of run queues that died since the last call; some may repeat.
-- A group is new when its first dead letter comes, and back when error_group_state_v1 says so. Groups of the first call
-- are not new. A group is forgotten 90 days after its last dead letter and the last change by an operator, unless it is
-- ignored until a later time.
-- Returns: groups that are new or back since p_since, and neither resolved nor ignored. `returned_from` is the state from
-- which a group is back.
-- Locks: rows that change. Only the session with the lock of the evaluator calls it.
-- Cost: that of present_error_groups_v1. It writes when a group is new, back, counts dead tasks, or was last recorded
-- more than a day ago.
CREATE OR REPLACE FUNCTION merge_error_groups_v1(
    p_environment_id bigint, p_queues text[], p_errors text[], p_died_at timestamptz[], p_since timestamptz,
    p_now timestamptz
) RETURNS TABLE (queue text, new_since timestamptz, returned_from text, pattern text, example text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_is_first boolean;
BEGIN
    UPDATE environments SET error_groups_from = p_now WHERE id = p_environment_id AND error_groups_from IS NULL;
    v_is_first := FOUND;

    INSERT INTO error_groups AS e (
        environment_id, queue, error_key, pattern, example, first_seen_at, last_seen_at)
    SELECT p_environment_id, c.queue, c.error_key, error_pattern_v1(c.example), left(c.example, 4000),
           CASE WHEN v_is_first THEN '-infinity' ELSE c.first_at END, p_now
    FROM (SELECT g.queue, g.error_key, min(g.first_at) AS first_at, max(g.example) AS example
          FROM (SELECT * FROM present_error_groups_v1(p_environment_id)
                UNION ALL
                SELECT t.queue, md5(error_pattern_v1(t.error))::uuid, t.died_at, t.died_at, t.error
                FROM unnest(p_queues, p_errors, p_died_at) AS t (queue, error, died_at)) g
          GROUP BY g.queue, g.error_key) c
    LEFT JOIN error_groups k
      ON k.environment_id = p_environment_id AND k.queue = c.queue AND k.error_key = c.error_key
    WHERE k.queue IS NULL OR k.last_seen_at < p_now - interval '1 day'
    ON CONFLICT (environment_id, queue, error_key) DO UPDATE SET
        example = excluded.example, last_seen_at = excluded.last_seen_at;

    PERFORM count_dead_tasks_v1(p_environment_id, p_queues, p_errors, p_died_at);
    UPDATE error_groups e SET
        last_seen_at = p_now,
        returned_at = CASE WHEN e.state = 'ignored' AND p_now >= e.ignored_until THEN e.ignored_until ELSE p_now END
    FROM error_group_records_v1(p_environment_id, NULL, NULL, NULL, NULL, p_now) r
    WHERE e.environment_id = p_environment_id AND e.queue = (r.record).queue AND e.error_key = (r.record).error_key
      AND r.current_state = 'back_again' AND e.returned_at IS NULL;

    DELETE FROM error_groups e
    WHERE e.environment_id = p_environment_id AND greatest(e.last_seen_at, e.changed_at) < p_now - interval '90 days'
      AND (e.ignored_until IS NULL OR e.ignored_until < p_now);

    RETURN QUERY
    SELECT e.queue, greatest(e.first_seen_at, e.returned_at), CASE WHEN e.returned_at IS NOT NULL THEN e.state END,
           e.pattern, e.example
    FROM error_groups e
    WHERE e.environment_id = p_environment_id AND (e.returned_at IS NOT NULL OR e.state IN ('new', 'open'))
      AND greatest(e.first_seen_at, e.returned_at) > p_since
    ORDER BY 2 DESC, e.error_key;
END $$;
