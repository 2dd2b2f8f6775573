-- tables_to_vacuum_v1: those of the named tables that have more than p_dead_rows dead rows, and more than a fifth of
-- their live rows; only tables that this user owns.
-- Locks: none.
-- Cost: follows the tables of the schema.
CREATE OR REPLACE FUNCTION tables_to_vacuum_v1(p_names text[], p_dead_rows bigint)
RETURNS TABLE (name text)
LANGUAGE sql STABLE AS $$
    SELECT s.relname::text FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
    WHERE s.schemaname = current_schema AND s.relname = ANY (p_names)
      AND s.n_dead_tup > p_dead_rows AND s.n_dead_tup > s.n_live_tup / 5
      AND pg_has_role(c.relowner, 'USAGE')
$$;
