-- alert_cause_facts_v1: what PostgreSQL knows about the cause of an incident, for some durable queues of an environment.
-- Returns: per queue whether it is paused, its consumer groups, waiting and running messages; `blocked`, the partition
-- whose next message failed most often; `errors`, the error groups of dead letters of the last two hours.
-- Locks: none.
-- Cost: follows the groups and error groups of the queues; of each group it reads at most 1,000 positions.
CREATE OR REPLACE FUNCTION alert_cause_facts_v1(p_environment_id bigint, p_queues text[], p_now timestamptz DEFAULT NULL)
RETURNS TABLE (queue text, paused boolean, groups bigint, depth bigint, running bigint, blocked jsonb, errors jsonb)
LANGUAGE sql STABLE AS $$
    WITH selected AS MATERIALIZED (
        SELECT q.id, q.name, q.paused, e.organization, e.project, e.name AS environment
        FROM queues q JOIN environments e ON e.id = q.environment_id
        WHERE q.environment_id = p_environment_id AND q.name = ANY (p_queues))
    SELECT s.name, s.paused, (SELECT count(*) FROM groups g WHERE g.queue_id = s.id), m.depth, m.running, b.blocked,
           coalesce(d.errors, '[]')
    FROM selected s
    JOIN queue_gauges_v1(array(SELECT i.id FROM selected i), p_now) m ON m.queue_id = s.id AND m.group_name = ''
    LEFT JOIN LATERAL (
        SELECT jsonb_build_object('partition', t.name, 'group', p.group_name, 'offset', p.cursor, 'attempts', p.failed,
                                  'messageId', (SELECT a.message_id FROM message_at_offset_v1(p.partition_id, p.cursor) a))
               AS blocked
        FROM (SELECT f.*, (f.attempts ->> f.cursor::text)::int AS failed
              FROM groups g
              CROSS JOIN LATERAL (
                  SELECT p.partition_id, p.cursor, p.attempts, g.name AS group_name FROM positions p
                  WHERE p.group_id = g.id AND p.ready_at IS NOT NULL ORDER BY p.ready_at LIMIT 1000) f
              WHERE g.queue_id = s.id AND f.attempts ? f.cursor::text
              ORDER BY failed DESC, f.partition_id LIMIT 1) p
        JOIN partitions t ON t.id = p.partition_id) b ON true
    LEFT JOIN LATERAL (
        SELECT jsonb_agg(jsonb_build_object('pattern', c.pattern, 'messages', c.messages) ORDER BY c.messages DESC) AS errors
        FROM (SELECT r.pattern, (SELECT sum(h) FROM unnest(r.hours) h)::bigint AS messages
              FROM dead_letter_error_groups_v1(s.organization, s.project, s.environment, s.name, NULL, NULL, NULL, 2, 20, 0,
                                               p_now) r) c
        WHERE c.messages > 0) d ON true
$$;
