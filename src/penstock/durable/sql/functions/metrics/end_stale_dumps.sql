-- end_stale_dumps_v1: end sessions of pg_dump whose snapshot is older than the commit of a rewrite_table_v1: they would
-- read an empty table and write a backup without its rows.
-- Returns: the process ids; `ended` is false for a session that this user may not end.
-- Locks: none.
-- Cost: follows the sessions of the server.
CREATE OR REPLACE FUNCTION end_stale_dumps_v1(p_rewrite_xid bigint)
RETURNS TABLE (pid int, ended boolean)
LANGUAGE plpgsql AS $$
BEGIN
    FOR pid IN
        SELECT a.pid FROM pg_stat_activity a
        WHERE a.pid = ANY (starting_dumps_v1()) AND age(a.backend_xmin) >= age(p_rewrite_xid::text::xid8::xid)
    LOOP
        BEGIN
            ended := pg_terminate_backend(pid);
        EXCEPTION WHEN insufficient_privilege THEN
            ended := false;
        END;
        RETURN NEXT;
    END LOOP;
END $$;
