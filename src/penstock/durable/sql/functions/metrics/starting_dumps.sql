-- starting_dumps_v1: the process ids of sessions of pg_dump that may have a snapshot and no locks yet.
-- Those are the ones of the last minute, and all whose start this user may not see.
-- Locks: none.
-- Cost: follows the sessions of the server.
CREATE OR REPLACE FUNCTION starting_dumps_v1() RETURNS int[]
LANGUAGE sql AS $$
    SELECT array(SELECT a.pid FROM pg_stat_activity a
                 WHERE a.datname = current_database() AND a.application_name LIKE 'pg_dump%'
                   AND (a.xact_start > clock_timestamp() - interval '1 minute' OR a.xact_start IS NULL))
$$;
