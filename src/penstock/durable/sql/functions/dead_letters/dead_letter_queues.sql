-- dead_letter_queues_v1: the queues of the environment that some dead letters belong to, and how many of them each has.
-- Locks: none.
-- Cost: one index lookup per dead letter and queue.
CREATE OR REPLACE FUNCTION dead_letter_queues_v1(
    p_organization text, p_project text, p_environment text, p_dead_letter_ids bigint[]
) RETURNS TABLE (queue text, dead_letters bigint)
LANGUAGE sql STABLE AS $$
    SELECT q.name, count(*)
    FROM dead_letters d JOIN queues q ON q.id = d.queue_id
    WHERE d.id = ANY (p_dead_letter_ids)
      AND q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
    GROUP BY q.name ORDER BY q.name
$$;
