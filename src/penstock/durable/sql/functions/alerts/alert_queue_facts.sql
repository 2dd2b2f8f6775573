-- alert_queue_facts_v1: the durable queues of an environment with what the metrics do not have: the number of dead letters.
-- Cost: follows the queues and their groups.
CREATE OR REPLACE FUNCTION alert_queue_facts_v1(p_environment_id bigint)
RETURNS TABLE (queue text, dead_letters bigint)
LANGUAGE sql STABLE AS $$
    SELECT q.name, coalesce(d.messages, 0)::bigint
    FROM queues q
    LEFT JOIN (SELECT c.queue_id, sum(c.messages) AS messages
               FROM (SELECT queue_id, messages FROM dead_counts
                     UNION ALL SELECT queue_id, messages FROM dead_tallies) c
               GROUP BY c.queue_id) d ON d.queue_id = q.id
    WHERE q.environment_id = p_environment_id
$$;
