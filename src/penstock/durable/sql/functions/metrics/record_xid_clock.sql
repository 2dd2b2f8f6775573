-- record_xid_clock_v1: record which transaction id is next, so that vacuum_horizon_v1 can date the ids that are held.
-- Readings older than three days are removed.
-- Locks: rows of xid_clock.
-- Cost: one row, and the old ones.
CREATE OR REPLACE FUNCTION record_xid_clock_v1() RETURNS void
LANGUAGE sql AS $$
    DELETE FROM xid_clock WHERE read_at < clock_timestamp() - interval '3 days';
    INSERT INTO xid_clock (read_at, next_xid) VALUES (clock_timestamp(), pg_current_xact_id())
    ON CONFLICT DO NOTHING;
$$;
