-- find_audit_entry_v1: read one audit entry, of an environment or, with p_environment NULL, of any.
-- Locks: none.
CREATE OR REPLACE FUNCTION find_audit_entry_v1(p_environment text[], p_id bigint) RETURNS SETOF audit_entries
LANGUAGE sql STABLE AS $$
    SELECT a.* FROM audit_entries a
    WHERE a.id = p_id
      AND (p_environment IS NULL
           OR a.environment_id = environment_id_v1(p_environment[1], p_environment[2], p_environment[3]))
$$;
