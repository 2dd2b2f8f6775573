-- vacuum_horizon_holders_v1: the rows of vacuum_horizon_v1, each with the seconds since it has held the horizon.
-- Locks: none.
-- Cost: that of vacuum_horizon_v1.
CREATE OR REPLACE FUNCTION vacuum_horizon_holders_v1(p_longer interval, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (kind text, name text, pid int, username text, application text, client text,
               held_since timestamptz, xmin_age bigint, age_s double precision)
LANGUAGE sql STABLE AS $$
    SELECT h.kind, h.name, h.pid, h.username, h.application, h.client, h.held_since, h.xmin_age,
           extract(epoch FROM coalesce(p_now, clock_timestamp()) - h.held_since)::float8
    FROM vacuum_horizon_v1(p_longer, p_now) h
$$;
