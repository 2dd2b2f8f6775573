-- seconds_until_due_v1: seconds until a lane may be drained, 0 if one may be now; NULL if no lane waits.
-- Locks: none.
-- Cost: follows the lanes with waiting operations.
CREATE OR REPLACE FUNCTION seconds_until_due_v1()
RETURNS TABLE (delay_s double precision)
LANGUAGE sql STABLE AS $$
    SELECT extract(epoch FROM min(greatest(l.not_before, now()) - now()))::float8
    FROM lanes l WHERE l.not_before < 'infinity'
$$;
