-- rewrite_table_v1: copy the live rows of a busy table into new files, and leave its dead rows behind with the old ones.
-- Vacuum cannot remove dead rows that an old snapshot may need; this can. p_column is a bigint column without an index:
-- to rewrite it, PostgreSQL rewrites the table with its indexes. References, rights and options stay.
-- A snapshot from before the rewrite sees an empty table. Our functions take their locks before their snapshots, so none
-- has such a snapshot. pg_dump takes its snapshot first: while one starts, nothing is rewritten, and once it has its
-- locks, they prevent it. end_stale_dumps_v1 ends one that started in the moment of the commit.
-- Returns: no row if a pg_dump starts or another session has the table locked; then nothing has changed. Otherwise
-- `locked_ms`, for how long the table was locked, and `rewrite_xid`, the transaction.
-- Locks: the table, exclusively.
-- Cost: follows the live rows, and the bytes of the table.
CREATE OR REPLACE FUNCTION rewrite_table_v1(p_name text, p_column text, p_lock_timeout_ms int)
RETURNS TABLE (locked_ms double precision, rewrite_xid bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_locked_at timestamptz;
BEGIN
    -- Operations wait behind this lock request, so it is only made if it is likely to succeed at once.
    IF starting_dumps_v1() <> '{}' OR EXISTS (
        SELECT 1 FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.relation = to_regclass(p_name) AND l.granted AND a.application_name NOT LIKE 'penstock%') THEN
        RETURN;
    END IF;
    PERFORM set_config('lock_timeout', p_lock_timeout_ms || 'ms', true);
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', p_name);
    v_locked_at := clock_timestamp();
    EXECUTE format('ALTER TABLE %1$I ALTER COLUMN %2$I TYPE bigint USING %2$I + 0', p_name, p_column);
    IF starting_dumps_v1() <> '{}' THEN
        RAISE EXCEPTION 'a pg_dump starts' USING ERRCODE = 'lock_not_available';
    END IF;
    RETURN QUERY SELECT extract(epoch FROM clock_timestamp() - v_locked_at)::float8 * 1000,
                        pg_current_xact_id()::text::bigint;
EXCEPTION WHEN lock_not_available THEN
    RETURN;
END $$;
