-- delete_dead_letter_v1: delete one dead letter, of the named queue and group if those are not NULL; whether it
-- existed.
-- Locks: the dead letter's row.
-- Cost: one index lookup per table.
CREATE OR REPLACE FUNCTION delete_dead_letter_v1(
    p_organization text, p_project text, p_environment text, p_dead_letter_id bigint, p_queue text, p_group text
) RETURNS boolean
LANGUAGE sql AS $$
    WITH deleted AS (
        DELETE FROM dead_letters d USING queues q
        WHERE d.id = p_dead_letter_id AND q.id = d.queue_id
          AND q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
          AND (p_queue IS NULL OR q.name = p_queue)
          AND (p_group IS NULL
               OR d.group_id = (SELECT g.id FROM groups g WHERE g.queue_id = q.id AND g.name = p_group))
        RETURNING d.id
    )
    SELECT EXISTS (SELECT 1 FROM deleted)
$$;
