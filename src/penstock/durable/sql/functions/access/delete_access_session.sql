-- delete_access_session_v1: end a session on every broker.
-- Returns: whether it existed.
-- Locks: the session; the row of access_version.
CREATE OR REPLACE FUNCTION delete_access_session_v1(p_hash bytea) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM access_sessions s WHERE s.hash = p_hash;
    IF FOUND THEN
        PERFORM raise_access_version_v1();
    END IF;
    RETURN FOUND;
END $$;
