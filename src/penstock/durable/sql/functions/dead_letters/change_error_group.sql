-- change_error_group_v1: set the state, the owner or the note of an error group, in p_queue or in all its queues.
-- p_state NULL keeps the state. p_sets_owner and p_sets_note tell whether to change those; NULL removes them. A new state
-- starts its count of dead letters: those that are committed before it do not bring the group back.
-- p_task_error, p_task_died_at: an error of the group and its first death, if p_queue is a run queue that has the group.
-- Returns: the queues that have or had the group; none if it is unknown.
-- Locks: the group's tallies, then its rows, as fold_dead_letter_counts_v1 does.
CREATE OR REPLACE FUNCTION change_error_group_v1(
    p_organization text, p_project text, p_environment text, p_error_key uuid, p_queue text, p_state text,
    p_ignored_until timestamptz, p_ignored_count bigint, p_ignored_rate bigint, p_sets_owner boolean, p_owner text,
    p_sets_note boolean, p_note text, p_changed_by text, p_task_error text, p_task_died_at timestamptz,
    p_now timestamptz DEFAULT NULL
) RETURNS TABLE (queue text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_environment_id bigint := environment_id_v1(p_organization, p_project, p_environment);
    v_now            timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    INSERT INTO error_groups (environment_id, queue, error_key, pattern, example, first_seen_at, last_seen_at)
    SELECT v_environment_id, g.queue, g.error_key, error_pattern_v1(g.example), left(g.example, 4000), g.first_at, v_now
    FROM (SELECT * FROM present_error_groups_v1(v_environment_id)
          UNION ALL
          SELECT p_queue, p_error_key, p_task_died_at, p_task_died_at, p_task_error WHERE p_task_error IS NOT NULL) g
    WHERE g.error_key = p_error_key AND (p_queue IS NULL OR g.queue = p_queue)
    ON CONFLICT DO NOTHING;
    IF p_state IS NOT NULL THEN
        PERFORM 1 FROM dead_tallies y JOIN queues q ON q.id = y.queue_id
        WHERE q.environment_id = v_environment_id AND (p_queue IS NULL OR q.name = p_queue)
          AND y.error_key = p_error_key AND y.deaths > 0
        ORDER BY y.id FOR UPDATE OF y;
        UPDATE dead_tallies y SET deaths = 0 FROM queues q
        WHERE q.id = y.queue_id AND q.environment_id = v_environment_id AND (p_queue IS NULL OR q.name = p_queue)
          AND y.error_key = p_error_key AND y.deaths > 0;
        DELETE FROM error_group_hours h
        WHERE h.environment_id = v_environment_id AND h.error_key = p_error_key
          AND (p_queue IS NULL OR h.queue = p_queue);
    END IF;
    RETURN QUERY
    UPDATE error_groups e SET
        state = coalesce(p_state, e.state),
        state_since = CASE WHEN p_state IS NULL THEN e.state_since ELSE v_now END,
        deaths = CASE WHEN p_state IS NULL THEN e.deaths ELSE 0 END,
        tasks_counted_to = CASE WHEN p_state IS NULL THEN e.tasks_counted_to ELSE v_now END,
        returned_at = CASE WHEN p_state IS NULL THEN e.returned_at END,
        ignored_until = CASE WHEN p_state IS NULL THEN e.ignored_until ELSE p_ignored_until END,
        ignored_count = CASE WHEN p_state IS NULL THEN e.ignored_count ELSE p_ignored_count END,
        ignored_rate = CASE WHEN p_state IS NULL THEN e.ignored_rate ELSE p_ignored_rate END,
        owner = CASE WHEN p_sets_owner THEN p_owner ELSE e.owner END,
        note = CASE WHEN p_sets_note THEN p_note ELSE e.note END,
        changed_at = v_now, changed_by = p_changed_by
    WHERE e.environment_id = v_environment_id AND e.error_key = p_error_key AND (p_queue IS NULL OR e.queue = p_queue)
    RETURNING e.queue;
END $$;
