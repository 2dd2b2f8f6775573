-- alert_platform_facts_v1: what PostgreSQL knows about itself: deferred operations that wait, and the session, slot or
-- transaction that has held the vacuum horizon for longest, if for more than p_longer.
-- Locks: none.
-- Cost: follows the operations that wait, and the sessions.
CREATE OR REPLACE FUNCTION alert_platform_facts_v1(p_longer interval)
RETURNS TABLE (pending_operations bigint, oldest_operation_s double precision, horizon_holder text,
               horizon_held_s double precision)
LANGUAGE sql STABLE AS $$
    SELECT o.operations, o.oldest_s, h.holder, h.age_s
    FROM (SELECT count(*) AS operations,
                 coalesce(extract(epoch FROM clock_timestamp() - min(p.accepted_at)), 0)::float8 AS oldest_s
          FROM operations p WHERE p.status = 'pending') o
    LEFT JOIN (
        SELECT v.kind || ' ' || v.name || coalesce(' of ' || nullif(v.application, ''), ' of ' || v.username, '') AS holder,
               v.age_s
        FROM vacuum_horizon_holders_v1(p_longer) v ORDER BY v.age_s DESC LIMIT 1) h ON true
$$;
