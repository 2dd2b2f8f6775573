-- Plain names: functions and columns are named after what they do and hold.
-- Every function except those that triggers call is dropped here; the functions of this version are created after
-- the last migration.
DO $$
DECLARE
    v_function regprocedure;
BEGIN
    FOR v_function IN
        SELECT p.oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = 'penstock' AND p.proname NOT IN ('count_dead_v1', 'name_error_v1', 'error_pattern_v1')
    LOOP
        EXECUTE format('DROP FUNCTION %s', v_function);
    END LOOP;
END $$;
DELETE FROM schema_migrations WHERE kind = 'function';

ALTER TABLE positions RENAME COLUMN careful_until TO redeliver_singly_until;
ALTER TABLE partitions RENAME COLUMN spilled TO deferred_pushes;
ALTER TABLE partitions RENAME COLUMN spilled_acks TO deferred_acks;
