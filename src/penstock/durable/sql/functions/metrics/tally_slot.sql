-- tally_slot_v1: compute the tally slot of this backend; it stays the same for the whole session.
CREATE OR REPLACE FUNCTION tally_slot_v1() RETURNS smallint
LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT (pg_backend_pid() % 64)::smallint $$;
