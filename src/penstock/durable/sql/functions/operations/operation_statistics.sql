-- operation_statistics_v1: operations of an environment per kind, priority and status: how many, when the oldest and the
-- newest were accepted, and the average seconds until they finished, or until now. Of completed ones, the last five
-- minutes.
-- Locks: none.
-- Cost: follows the operations that wait, failed, or completed in that time, by index.
CREATE OR REPLACE FUNCTION operation_statistics_v1(p_organization text, p_project text, p_environment text)
RETURNS TABLE (kind text, priority smallint, status text, operations bigint, oldest timestamptz, newest timestamptz,
               average_s double precision)
LANGUAGE sql STABLE AS $$
    SELECT o.kind, o.priority, o.status, count(*), min(o.accepted_at), max(o.accepted_at),
           avg(extract(epoch FROM coalesce(o.finished_at, now()) - o.accepted_at))::float8
    FROM (SELECT p.* FROM operations p WHERE p.status = 'pending'
          UNION ALL SELECT f.* FROM operations f WHERE f.status = 'failed'
          UNION ALL SELECT c.* FROM operations c
                    WHERE c.status = 'completed' AND c.finished_at > now() - interval '5 minutes') o
    JOIN queues q ON q.id = o.queue_id
    WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
    GROUP BY o.kind, o.priority, o.status ORDER BY o.priority, o.kind, o.status
$$;
